"""The steps of a run that are tried again."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kafka_replication.config import Replication
from kafka_replication.model.errors import AttemptsExhausted, NotReady
from kafka_replication.runs.run import Run
from kafka_replication.runs.watching import reported_failure
from kafka_replication.runtime import deadline


def test_a_step_whose_attempts_are_exhausted_is_a_named_failure_that_an_alert_tells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    document = {
        "name": "orders-dr",
        "source": {"connection": "one"},
        "target": {"connection": "other"},
        "topics": {"include": ["orders"]},
    }
    monkeypatch.setattr(deadline, "ATTEMPTS", 2)
    nothing, calls = cast(Any, None), list[str]()
    run = Run(replication=Replication.model_validate(document), clusters=nothing, store=nothing, run_id="run")

    def fail() -> None:
        calls.append("")
        raise NotReady(f"no leader {len(calls)}", "start the broker")

    with pytest.raises(AttemptsExhausted) as failed:
        run.retry("reading the ledger", fail)
    assert len(calls) == 2 and failed.value.retriable
    told = reported_failure(failed.value, run.run_id)
    wanted = "orders-dr: reading the ledger: 2 attempts in a row failed,"
    assert wanted in told.what and told.what.endswith("the last error was: no leader 2")
    assert told.remedy.startswith("start the broker")
