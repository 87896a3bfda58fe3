"""Worlds of one partition for the planner's tests: what both clusters, the ledger and the store say of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_replication.config import Replication
from kafka_replication.ledger.entries import Deleted, Ids, Position, Removed, Start, Verified
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.planning.live import own, plan
from kafka_replication.planning.plan import PartitionPlan, Plan, State
from kafka_replication.planning.refusals import starts_to_write
from kafka_replication.planning.snapshot import PartitionOffsets, Snapshot, Topic

IDS = Ids("SRC", "s-orders", "t-orders")
RESET = "kafka-replication reset orders-dr.yaml --topic orders --confirm orders --target-topic orders"
TIME = "2030-01-01T00:00:00.000Z"


def key(topic: str = "orders", partition: int = 0, target: str | None = None) -> PartitionKey:
    return PartitionKey("orders-dr", TopicPartition(topic, partition), target or topic)


def replication(**changes: Any) -> Replication:
    minimal: dict[str, Any] = {
        "name": "orders-dr",
        "source": {"connection": "kafka_source"},
        "target": {"connection": "kafka_target"},
        "topics": {"include": ["^orders", "^audit"]},
    }
    return Replication.model_validate(minimal | changes)


def topic(name: str, topic_id: str, *offsets: tuple[int, int, int]) -> Topic:
    return Topic(
        name=name,
        topic_id=topic_id,
        partitions={number: PartitionOffsets(*each) for number, each in enumerate(offsets)},
        replication_factor=3,
    )


def position(
    next_offset: int, *, start: int = 0, ids: Ids = IDS, generation: int = 1, more: Sequence[OffsetRange] = ()
) -> Position:
    return Position(
        generation=generation,
        ids=ids,
        start=start,
        next_offset=next_offset,
        coverage=Coverage.of([OffsetRange(start, next_offset), *more]),
        leader_epoch=4,
        target_end=next_offset,
    )


def verified(until: int, *, start: int = 0, generation: int = 1) -> Verified:
    return Verified(
        generation=generation,
        coverage=Coverage.of([OffsetRange(start, until)]),
        level="digest",
        run_id="run-0",
        time="2030-01-01T00:00:00.000Z",
    )


def removed(coverage: Sequence[tuple[int, int]], unexplained: Sequence[tuple[int, int]]) -> Removed:
    """Copies that the target no longer has, as the snapshot shows it."""
    return Removed(
        generation=1,
        target_start=50,
        coverage=Coverage.of(OffsetRange(*pair) for pair in coverage),
        unexplained=Coverage.of(OffsetRange(*pair) for pair in unexplained),
        recopy_allowed=Coverage(),
        watermark_floor=0,
        run_id="run-0",
        time="2030-01-01T00:00:00.000Z",
    )


@dataclass(frozen=True)
class Case:
    """One partition's world. Without more: `orders` with one partition [0, 100), nothing replicated yet."""

    source: Mapping[str, Topic] = field(default_factory=lambda: {"orders": topic("orders", "s-orders", (0, 100, 100))})
    target: Mapping[str, Topic] = field(
        default_factory=lambda: {"orders": topic("orders", "t-orders", (0, 9999, 9999))}
    )
    positions: Mapping[PartitionKey, Position] = field(default_factory=dict)
    verified: Mapping[PartitionKey, Verified] = field(default_factory=dict)
    watermarks: Mapping[PartitionKey, int] = field(default_factory=dict)
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    until: Mapping[TopicPartition, int] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    stored: Mapping[PartitionKey, Start] = field(default_factory=dict)
    deleted: Mapping[PartitionKey, Deleted] = field(default_factory=dict)
    removed: Mapping[PartitionKey, Removed] = field(default_factory=dict)  # what the snapshot shows
    foreign: Mapping[PartitionKey, int] = field(default_factory=dict)

    @property
    def snapshot(self) -> Snapshot:
        return Snapshot(
            source_cluster="SRC",
            target_cluster="TGT",
            source=self.source,
            target=self.target,
            starts=self.starts,
            until=self.until,
            removed=self.removed,
            foreign=self.foreign,
        )

    @property
    def ledger(self) -> LedgerView:
        return LedgerView(self.positions, self.verified, starts=self.stored, deleted=self.deleted)

    def plan(self) -> Plan:
        return plan(replication(**self.config), self.snapshot, self.ledger, self.watermarks)

    def to_remember(self) -> Mapping[PartitionKey, Start]:
        settings = replication(**self.config)
        return starts_to_write(settings, self.snapshot, own(settings, self.ledger), self.plan().refused, TIME)

    def one(self, wanted: PartitionKey | None = None) -> PartitionPlan:
        found = [each for each in self.plan().partitions if wanted is None or each.key == wanted]
        assert len(found) == 1
        return found[0]


def source(*offsets: tuple[int, int, int], topic_id: str = "s-orders") -> dict[str, Topic]:
    return {"orders": topic("orders", topic_id, *offsets)}


DONE: dict[str, Any] = {"positions": {key(): position(100)}, "verified": {key(): verified(100)}}
WORK: dict[str, tuple[Case, State, tuple[int, int] | None, list[list[int]]]] = {
    "new": (Case(), State.OPENING, (0, 100), []),
    "new, and the source is empty": (Case(source=source((0, 0, 0))), State.OPENING, None, []),
    "new, and the target topic will be created": (Case(target={}), State.OPENING, (0, 100), []),
    "new, the log starts late: no promise was made about what is gone": (
        Case(source=source((30, 100, 100))),
        State.OPENING,
        (30, 100),
        [],
    ),
    "new, from latest": (Case(starts={key().source: 100}), State.OPENING, None, []),
    "new, from a time": (Case(starts={key().source: 60}), State.OPENING, (60, 100), []),
    "nothing new": (Case(positions={key(): position(100)}, verified={key(): verified(100)}), State.IN_SYNC, None, []),
    "new records": (Case(positions={key(): position(40)}, verified={key(): verified(40)}), State.BEHIND, (40, 100), []),
    "the last stable offset is the end, not the high watermark": (
        Case(source=source((0, 100, 70)), positions={key(): position(40)}, verified={key(): verified(40)}),
        State.BEHIND,
        (40, 70),
        [],
    ),
    "an open transaction right after the position": (
        Case(source=source((0, 100, 40)), positions={key(): position(40)}, verified={key(): verified(40)}),
        State.IN_SYNC,
        None,
        [],
    ),
    "copied, and never verified": (Case(positions={key(): position(100)}), State.PENDING, None, [[0, 100]]),
    "copied, and verified in part": (
        Case(positions={key(): position(100)}, verified={key(): verified(40)}),
        State.PENDING,
        None,
        [[40, 100]],
    ),
    "a backfill ahead is not verified": (
        Case(positions={key(): position(40, more=[OffsetRange(60, 70)])}, verified={key(): verified(40)}),
        State.BEHIND,
        (40, 100),
        [[60, 70]],
    ),
    "behind, and an earlier run died before it verified": (
        Case(positions={key(): position(60)}, verified={key(): verified(40)}),
        State.BEHIND,
        (60, 100),
        [[40, 60]],
    ),
    "verified in an earlier generation counts for nothing": (
        Case(positions={key(): position(100, generation=2)}, verified={key(): verified(100, generation=1)}),
        State.PENDING,
        None,
        [[0, 100]],
    ),
    "verified in this generation counts": (
        Case(positions={key(): position(100, generation=2)}, verified={key(): verified(100, generation=2)}),
        State.IN_SYNC,
        None,
        [],
    ),
    "the watermark is behind the verified coverage": (
        Case(positions={key(): position(100)}, verified={key(): verified(100)}, watermarks={key(): 40}),
        State.IN_SYNC,
        None,
        [],
    ),
    "the watermark equals the position": (
        Case(positions={key(): position(100)}, verified={key(): verified(100)}, watermarks={key(): 100}),
        State.IN_SYNC,
        None,
        [],
    ),
    "retention reached the position and no further": (
        Case(source=source((40, 100, 100)), positions={key(): position(40)}, verified={key(): verified(40)}),
        State.BEHIND,
        (40, 100),
        [],
    ),
    "the source ends at the position": (
        Case(source=source((0, 40, 40)), positions={key(): position(40)}, verified={key(): verified(40)}),
        State.IN_SYNC,
        None,
        [],
    ),
    "max_records_per_run bounds a new partition": (
        Case(config={"max_records_per_run": 30}),
        State.OPENING,
        (0, 30),
        [],
    ),
    "max_records_per_run counts from the position": (
        Case(config={"max_records_per_run": 30}, positions={key(): position(40)}, verified={key(): verified(40)}),
        State.BEHIND,
        (40, 70),
        [],
    ),
    "max_records_per_run beyond the end": (
        Case(config={"max_records_per_run": 61}, positions={key(): position(40)}, verified={key(): verified(40)}),
        State.BEHIND,
        (40, 100),
        [],
    ),
    "an end asked for": (
        Case(until={key().source: 55}, positions={key(): position(40)}, verified={key(): verified(40)}),
        State.BEHIND,
        (40, 55),
        [],
    ),
    "an end asked for that is reached": (
        Case(until={key().source: 30}, positions={key(): position(40)}, verified={key(): verified(40)}),
        State.IN_SYNC,
        None,
        [],
    ),
    "an end asked for beyond the last stable offset": (
        Case(
            source=source((0, 100, 70)),
            until={key().source: 90},
            positions={key(): position(40)},
            verified={key(): verified(40)},
        ),
        State.BEHIND,
        (40, 70),
        [],
    ),
    "both bounds: the nearer one": (
        Case(
            until={key().source: 60},
            config={"max_records_per_run": 30},
            positions={key(): position(40)},
            verified={key(): verified(40)},
        ),
        State.BEHIND,
        (40, 60),
        [],
    ),
    "copies were removed, and nothing explains it": (
        Case(**DONE, removed={key(): removed([(0, 30)], [(10, 30)])}),
        State.REMOVED,
        None,
        [],
    ),
    "copies were removed, which retention explains": (
        Case(**DONE, removed={key(): removed([(0, 30)], [])}),
        State.PARTLY_REMOVED,
        None,
        [],
    ),
    "copies of an earlier generation were removed": (
        Case(**DONE, removed={key(): replace(removed([(0, 30)], [(0, 30)]), generation=7)}),
        State.IN_SYNC,
        None,
        [],
    ),
    "removed before they were verified": (
        Case(positions={key(): position(100)}, verified={}, removed={key(): removed([(0, 30)], [(0, 30)])}),
        State.PENDING,
        None,
        [[0, 100]],
    ),
}


OPENED = {key(): position(40)}


THREE = {"orders": topic("orders", "t-orders", *[(0, 10, 10)] * 3)}

AUDIT = topic("audit", "s-audit", (0, 10, 10))
GROWN_TARGET = {
    "orders": topic("orders", "t-orders", (0, 9999, 9999), (0, 9999, 9999)),
    "audit": topic("audit", "t-audit", (0, 0, 0)),
}
