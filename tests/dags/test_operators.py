"""What the tasks leave in XCom."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kafka_replication.config import Replication
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.orchestration import operators, task_run
from kafka_replication.planning.plan import Plan
from kafka_replication.runs import steps

REPLICATION = Replication.model_validate(
    {
        "name": "orders-dr",
        "source": {"connection": "here"},
        "target": {"connection": "there"},
        "topics": {"include": ["orders"]},
    }
)


def test_two_targets_of_one_partition_are_two_watermarks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backfill to another topic is pending while the live copy goes on."""
    at = TopicPartition("orders", 0)
    moved = {PartitionKey("orders-dr", at, "orders"): 120, PartitionKey("orders-dr", at, "orders.old"): 30}

    @contextmanager
    def working(*_: Any, **__: Any) -> Iterator[None]:
        yield

    monkeypatch.setattr(task_run, "working", working)
    monkeypatch.setattr(task_run, "planned", lambda run: Plan("orders-dr", ()))
    monkeypatch.setattr(steps, "advance", lambda run, keys: moved)
    made = operators.AdvanceOperator(task_id="advance", replication=REPLICATION)
    assert made.execute({}) == {"orders-0 -> orders": 120, "orders-0 -> orders.old": 30}
