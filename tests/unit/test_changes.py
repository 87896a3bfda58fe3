"""A filter or transform that changed is noted where it begins to apply; two directions that feed each other are seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kafka_replication.config import Replication
from kafka_replication.ledger.entries import Ids, Position, Transform
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.planning import plan_codec
from kafka_replication.planning.plan import PartitionPlan, Plan, State, changes
from kafka_replication.planning.preflight import loops

OLD, NEW = Transform("filter", "sha256:1"), Transform("filter", "sha256:2")
IDS = Ids("SRC", "s", "t")


def key(number: int = 0, source: str = "orders", target: str = "orders", name: str = "a-to-b") -> PartitionKey:
    return PartitionKey(name, TopicPartition(source, number), target)


def position(transform: Transform | None, until: int = 10, ids: Ids = IDS) -> Position:
    coverage = Coverage.of([OffsetRange(0, until)] if until else [])
    return Position(generation=1, ids=ids, start=0, next_offset=until, coverage=coverage, transform=transform)


def planned(number: int, copy: OffsetRange | None = OffsetRange(10, 20)) -> PartitionPlan:  # noqa: B008
    made = PartitionPlan(
        key=key(number),
        state=State.BEHIND,
        ids=IDS,
        generation=1,
        start=0,
        position=10,
        source_end=20,
        watermark=10,
    )
    return replace(made, copy=copy)


def noted(today: Transform | None, *transforms: Transform | None, **more: Any) -> tuple[str, ...]:
    plan = Plan("a-to-b", tuple(planned(number, **more) for number in range(len(transforms))))
    return changes(plan, LedgerView({key(n): position(one) for n, one in enumerate(transforms)}), today)


def test_one_note_for_all_partitions() -> None:
    (note,) = noted(NEW, OLD, OLD, NEW)
    assert "are copied with filter (sha256:2) now" in note and "earlier ones were copied with filter (sha256:1)" in note
    assert "(orders-0 from 10, orders-1 from 10)" in note


def test_a_filter_that_came_or_went_is_a_change() -> None:
    assert "earlier ones were copied without filter or transform" in noted(NEW, None)[0]
    assert "are copied without filter or transform now" in noted(None, OLD)[0]


def test_nothing_is_said_without_a_change_or_without_work() -> None:
    assert noted(NEW, NEW) == noted(None, None) == noted(NEW, OLD, copy=None) == ()
    fresh = LedgerView({key(): position(None, until=0)})
    assert changes(Plan("a-to-b", (planned(0),)), fresh, NEW) == (), "nothing was copied yet"


def test_a_stored_plan_keeps_its_notes() -> None:
    plan = Plan("a-to-b", (planned(0),), changes=noted(NEW, OLD))
    assert plan.notes == noted(NEW, OLD)
    assert plan_codec.decode(plan_codec.encode(plan), "run") == plan


def replication(**more: Any) -> Replication:
    topics = {"include": ["orders", "dr.orders"], "rename": more.pop("rename", "{topic}")}
    sides = {"source": {"connection": "a"}, "target": {"connection": "b"}}
    return Replication.model_validate({"name": "a-to-b", "topics": topics | more.pop("topics", {}), **sides, **more})


def test_the_other_direction_is_warned_of() -> None:
    back = {key(name="b-to-a"): position(None, ids=Ids("B", "s", "t"))}
    (found,) = loops(replication(), "B", back)
    assert found.what == "the replication b-to-a copies orders back to orders: records go round for ever"
    assert found.remedy.startswith("set transform: provenance and topics.exclude_from: [B];")
    (half,) = loops(replication(transform="provenance"), "B", back)
    assert half.remedy.startswith("set topics.exclude_from: [B];")
    assert not list(loops(replication(transform="provenance", topics={"exclude_from": ["B"]}), "B", back))
    assert not list(loops(replication(), "C", back)), "it comes from another cluster"
    assert not list(loops(replication(rename="dr.{topic}"), "B", back)), "what goes there does not come back"
