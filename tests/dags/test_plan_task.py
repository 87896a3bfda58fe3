"""How often the task ``plan`` is tried: a route that never worked is told at once."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from kafka_replication.model.offsets import PartitionKey, TopicPartition
from kafka_replication.orchestration import task_run
from kafka_replication.orchestration.dag_factory import build_dag
from kafka_replication.store import open_store
from kafka_replication.watermarks.values import WatermarkChange
from stack.ports import LOOPBACK, free_ports
from tests.dags.test_backfill_dag import plan_task, replication

NAME = "orders-dr"


@pytest.fixture
def store_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty store, and two clusters that do not answer."""
    [port] = free_ports(1)
    silent = json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": f"{LOOPBACK}:{port}", "log_level": 0}})
    for name in ("HERE", "THERE"):
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", silent)
    url = f"sqlite:///{tmp_path}/store.db"
    monkeypatch.setenv("KAFKA_REPLICATION_STORE_URL", url)
    open_store(url).close()
    return url


def fail(expected: type[Exception]) -> Exception:
    plan = plan_task(build_dag(replication(timeouts={"request": 1})))
    context: Any = {
        "params": {"topics": None, "until": None, "dry_run": False},
        "ti": SimpleNamespace(task_id="plan", try_number=1),
        "dag": SimpleNamespace(dag_id=NAME),
        "run_id": "r",
    }
    with pytest.raises(expected) as failed:
        plan.execute(context)
    return failed.value


def test_a_route_that_never_worked_is_not_tried_again(store_url: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        problem = fail(AirflowFailException)
    error = task_run.error_of(problem)
    assert error is not None and error.id == "unreachable"
    lines = [record.getMessage() for record in caplog.records if record.name == task_run.__name__]
    assert lines == [
        *error.what.splitlines(),
        f"remedy: {error.remedy}",
        "no further try: nothing of this replication was ever verified",
    ]
    assert problem.__cause__ is None and problem.__suppress_context__, "no chain of tracebacks"


def test_a_route_that_worked_is_tried_again(store_url: str) -> None:
    store = open_store(store_url)
    key = PartitionKey(NAME, TopicPartition("orders", 0), "orders")
    store.advance_many(
        [
            WatermarkChange(
                key=key,
                generation=0,
                source_topic_id="s",
                target_topic_id="t",
                offset=5,
                expected_version=None,
                run_id="r",
            )
        ]
    )
    store.close()
    assert not isinstance(fail(AirflowException), AirflowFailException)
