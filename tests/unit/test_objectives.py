"""A drill as a sentence, what is asked of it, and the alerts about it; without brokers."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from kafka_replication.alerting.open_causes import Observation, decide
from kafka_replication.config import Replication
from kafka_replication.ledger.entries import Ids
from kafka_replication.model.offsets import PartitionKey, TopicPartition
from kafka_replication.planning.plan import PartitionPlan, State
from kafka_replication.reporting.drill import drill_causes, worse_than
from kafka_replication.reporting.status import PartitionStatus, row_of
from kafka_replication.watermarks.sight import Drill

NOW = datetime(2030, 1, 31, 12, tzinfo=UTC)
DRILL = Drill(
    at="2030-01-31T06:00:00.000Z",
    records=312,
    unknown=0,
    seconds=4.0,
    since="oldest record",
    groups_exact=17,
    groups_moved=18,
)


def replication(**more: Any) -> Replication:
    file = {"name": "orders-dr", "source": {"connection": "a"}, "target": {"connection": "b"}}
    return Replication.model_validate({**file, "topics": {"include": ["orders"]}, **more})


def partition(state: State) -> PartitionStatus:
    key = PartitionKey("orders-dr", TopicPartition("orders", 0), "orders")
    plan = PartitionPlan(
        key=key,
        state=state,
        ids=Ids("A", "s", "t"),
        generation=1,
        start=0,
        position=9,
        source_end=9,
        watermark=9,
    )
    return row_of(plan)


def causes(last: Drill | None, *states: State, **objectives: Any) -> list[str]:
    rows = [partition(state) for state in states or (State.IN_SYNC,)]
    found = drill_causes(replication(objectives=objectives), last, rows, NOW)
    return [str(cause.key) for cause in found]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "if the source died now: 312 records, 4 s (the age of the oldest of them), 17 of 18 groups exact"),
        ({"records": 0, "seconds": 0.0, "groups_moved": 0}, "if the source died now: 0 records, 0 s"),
        (
            {"since": "last verification", "seconds": 7200.0, "unknown": 2, "groups_moved": 0},
            "if the source died now: 312 records, 2.0 h (since the last verification); of 2 partitions it is not known",
        ),
        (
            {"since": "last look", "groups_moved": 0},
            "if the source died now: 312 records, 4 s (since the last look at the source)",
        ),
        ({"seconds": None, "groups_moved": 0}, "if the source died now: 312 records, of an unknown age"),
    ],
    ids=str,
)
def test_the_sentence_says_what_the_seconds_are(changes: dict[str, Any], sentence: str) -> None:
    assert replace(DRILL, **changes).sentence == sentence


@pytest.mark.parametrize(
    ("objectives", "changes", "worse"),
    [
        ({}, {}, []),
        ({"lag": 4}, {}, []),
        ({"lag": 3}, {}, ["4 s would be lost, and objectives.lag allows 3 s"]),
        ({"lag": 3}, {"seconds": None}, ["an unknown time would be lost, and objectives.lag allows 3 s"]),
        ({"groups_exact": 0.9}, {}, []),
        (
            {"groups_exact": 1},
            {},
            ["17 of 18 consumer groups are exact, and objectives.groups_exact asks for 1"],
        ),
        ({"groups_exact": 0.07}, {"groups_exact": 7, "groups_moved": 100}, []),
        ({"groups_exact": 1}, {"groups_exact": 0, "groups_moved": 0}, []),
    ],
    ids=str,
)
def test_a_drill_is_worse_than_asked(objectives: Any, changes: dict[str, Any], worse: list[str]) -> None:
    assert worse_than(replication(objectives=objectives).objectives, replace(DRILL, **changes)) == worse


def test_the_causes_of_alerts() -> None:
    assert causes(None) == causes(DRILL) == []
    assert causes(None, drill_every=60) == ["drill-overdue"]
    assert causes(DRILL, drill_every=6 * 3600) == []
    assert causes(DRILL, drill_every=6 * 3600 - 1) == ["drill-overdue"]
    assert causes(DRILL, lag=3) == ["drill-worse"]
    assert causes(DRILL, State.SEALED, lag=3, drill_every=60) == [], "a sealed direction needs none"
    assert causes(DRILL, State.SEALED, State.IN_SYNC, lag=3) == ["drill-worse"]


def test_a_first_drill_is_due_as_long_after_somebody_has_looked_as_a_later_one() -> None:
    day = replication(objectives={"drill_every": 86_400})
    found = Observation(causes=tuple(drill_causes(day, None, [partition(State.IN_SYNC)], NOW)))
    first = decide((), found, NOW)
    assert first.alerts == ()
    assert decide(first.open, found, NOW + timedelta(hours=23)).alerts == ()
    [alert] = decide(first.open, found, NOW + timedelta(hours=24)).alerts
    assert "no failover drill for 24.0 h" in alert.open.cause.what and "orders-dr.drill" in alert.open.cause.remedy


@pytest.mark.parametrize(
    "more",
    [
        {"objectives": {"groups_exact": 1.1}},
        {"objectives": {"lag": 0}},
        {"objectives": {"drill_every": 59}},
        {"objectives": {"lag": 60}, "delivery": "at_least_once"},
    ],
    ids=str,
)
def test_objectives_that_are_refused(more: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"objectives|for directions that can be sealed, not with this delivery"):
        replication(**more)
