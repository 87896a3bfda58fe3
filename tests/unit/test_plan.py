"""The planner, odd case by odd case: the state it finds, the ranges it gives, and the words for whoever is on call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from kafka_replication.config import Replication
from kafka_replication.ledger.entries import ONE_WRITER, Deleted, Ids, Position, Removed, Start, Verified
from kafka_replication.ledger.placement import Spread
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import Coverage, OffsetRange, TopicPartition
from kafka_replication.model.partitioning import PartitionedBy
from kafka_replication.planning.live import own, plan, refuse_occupied
from kafka_replication.planning.plan import REFUSALS, PartitionPlan, Plan, State
from kafka_replication.planning.snapshot import PartitionOffsets, Problem, Snapshot, Topic
from kafka_replication.planning.starts import starts_to_write

IDS = Ids("SRC", "s-orders", "t-orders")
RESET = "kafka-replication reset orders-dr.yaml --topic orders --confirm orders --target-topic orders"


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
        again=Coverage(),
        passed=0,
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


# --- what to do -------------------------------------------------------------------------------------------------------------------

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


@pytest.mark.parametrize(("case", "state", "copy", "verify"), WORK.values(), ids=WORK)
def test_what_there_is_to_do(case: Case, state: State, copy: tuple[int, int] | None, verify: list[list[int]]) -> None:
    made = case.one()
    assert made.state is state
    assert made.copy == (OffsetRange(*copy) if copy else None)
    assert made.verify.encode() == verify
    assert (made.what, bool(made.remedy), made.refused) == ("", bool(made.missed), False)
    assert case.plan().idle == (copy is None and not verify)


# --- why not ----------------------------------------------------------------------------------------------------------------------

OPENED = {key(): position(40)}
THREE = {"orders": topic("orders", "t-orders", *[(0, 10, 10)] * 3)}


def spread(name: str, *ends: int, mapped: str = "") -> Position:
    by = PartitionedBy(name=name, hash=mapped, partitions=len(ends))
    return replace(position(40), target_end=0, spread=Spread(by, ends))


AUDIT = topic("audit", "s-audit", (0, 10, 10))

CONTRADICTS = (
    f"the ledger contradicts itself: orders-0 (entries in kafka-replication.positions-{key().ledger_partition}): "
)
REPAIR = (
    "find out who changed the ledger topics, or what restored an older state of them; then let the command show what the"
    " receipts prove, and write it: kafka-replication ledger orders-dr.yaml --repair"
)
REFUSED: dict[str, tuple[Case, State, str, str]] = {
    "target truncated": (
        Case(target={"orders": topic("orders", "t-orders", (0, 30, 30))}, positions=OPENED),
        State.TARGET_TRUNCATED,
        "orders-0: orders-0 on the target ends at 30, but our records were there up to 40: the target lost its last 10 offsets"
        " after they were copied",
        "find out what truncated or restored it (unclean leader election, restored disk); then re-create orders and reset the"
        f" topic: {RESET}",
    ),
    "the next offset lies in the coverage": (
        Case(positions={key(): replace(position(40), next_offset=30)}),
        State.CONTRADICTED,
        f"{CONTRADICTS}the position's next offset is 30, but its coverage has 39, too",
        REPAIR,
    ),
    "the coverage does not reach the next offset": (
        Case(positions={key(): replace(position(40), next_offset=90)}),
        State.CONTRADICTED,
        f"{CONTRADICTS}the position's next offset is 90, but its coverage lacks [40, 90)",
        REPAIR,
    ),
    "more is verified than was copied": (
        Case(positions=OPENED, verified={key(): verified(70)}),
        State.CONTRADICTED,
        f"{CONTRADICTS}[40, 70) are called verified, but the position says that they were never copied",
        REPAIR,
    ),
    "it started above its next offset": (
        Case(positions={key(): replace(position(40), start=41)}),
        State.CONTRADICTED,
        f"{CONTRADICTS}the position says that it started at 41, above its next offset 40",
        REPAIR,
    ),
    "foreign records": (
        Case(positions=OPENED, foreign={key(): 41}),
        State.FOREIGN,
        "orders-0: orders-0 on the target holds a record at offset 41 that the ledger does not know (ours end at 40)",
        ONE_WRITER,
    ),
    "copied with keep, now by key": (
        Case(positions=OPENED, config={"partitioning": "by_key"}),
        State.REPARTITIONED,
        "orders-0: its records below offset 40 were copied with partitioning keep, the file says by_key: later records of a"
        " key could come before earlier ones",
        "set partitioning: keep again; or replicate to another target topic (topics.rename), or re-create orders and reset"
        f" the topic: {RESET}",
    ),
    "copied by key, now with keep": (
        Case(positions={key(): spread("by_key", 40)}),
        State.REPARTITIONED,
        "orders-0: its records below offset 40 were copied with partitioning by_key, the file says keep: later records of a"
        " key could come before earlier ones",
        "set partitioning: by_key again; or replicate to another target topic (topics.rename), or re-create orders and reset"
        f" the topic: {RESET}",
    ),
    "partitions were added to a target that is written by key": (
        Case(positions={key(): spread("by_key", 40)}, target=THREE, config={"partitioning": "by_key"}),
        State.REPARTITIONED,
        "orders-0: orders has 3 partitions now and had 1 when the records below offset 40 were copied: with partitioning"
        " by_key, later records of a key go to another partition than earlier ones",
        "if the readers of orders are ready for that, set target_topics.partitions: 3; else re-create the topic and reset"
        f" it: {RESET}",
    ),
    "a map without the partition": (
        Case(config={"partitioning": "map", "partition_map": {"1": 0}}),
        State.FEWER_PARTITIONS,
        "orders-0: partition_map has no target partition for it",
        "add '0: <target partition>' to partition_map",
    ),
    "a map to a partition that the target lacks": (
        Case(config={"partitioning": "map", "partition_map": {"0": 3}}, target=THREE),
        State.FEWER_PARTITIONS,
        "orders-0: partition_map sends it to partition 3 of orders, which has 3 partitions, from 0 on",
        "correct partition_map, or add partitions to the target topic",
    ),
    "one of several target partitions lost records": (
        Case(positions={key(): spread("by_key", 9, 0, 12)}, target=THREE, config={"partitioning": "by_key"}),
        State.TARGET_TRUNCATED,
        "orders-0: orders-2 on the target ends at 10, but our records were there up to 12: the target lost its last 2 offsets"
        " after they were copied",
        "find out what truncated or restored it (unclean leader election, restored disk); then re-create orders and reset the"
        f" topic: {RESET}",
    ),
    "source topic re-created": (
        Case(source=source((0, 100, 100), topic_id="s-other"), positions=OPENED),
        State.SOURCE_RECREATED,
        "orders-0: the source topic was re-created (id s-orders in cluster SRC became s-other in SRC); offset 40 now means other records",
        f"empty or re-create orders (or set on_existing_target: append), then reset the topic: {RESET}",
    ),
    "another source cluster": (
        Case(positions={key(): position(40, ids=replace(IDS, source_cluster="OLD"))}),
        State.SOURCE_RECREATED,
        "orders-0: the source topic was re-created (id s-orders in cluster OLD became s-orders in SRC); offset 40 now means other records",
        f"empty or re-create orders (or set on_existing_target: append), then reset the topic: {RESET}",
    ),
    "target topic re-created": (
        Case(target={"orders": topic("orders", "t-other", (0, 0, 0))}, positions=OPENED),
        State.TARGET_RECREATED,
        "orders-0: the target topic orders was re-created or deleted (id t-orders became t-other); copies below offset 40 are gone with it",
        f"reset the topic, which copies it again from start_from: {RESET}",
    ),
    "target topic deleted": (
        Case(target={}, positions=OPENED),
        State.TARGET_RECREATED,
        "orders-0: the target topic orders was re-created or deleted (id t-orders became none); copies below offset 40 are gone with it",
        f"reset the topic, which copies it again from start_from: {RESET}",
    ),
    "ledger went back": (
        Case(positions=OPENED, watermarks={key(): 41}),
        State.LEDGER_LOST,
        "orders-dr: orders-0 -> orders: the store says everything below 41 was verified, but the ledger ends at 40: it was lost or went back",
        f"restore the ledger topics of the target, or empty orders and reset the topic: {RESET}",
    ),
    "ledger empty": (
        Case(watermarks={key(): 40}),
        State.LEDGER_LOST,
        "orders-dr: orders-0 -> orders: the store says everything below 40 was verified, but the ledger has no entry: it was lost or went back",
        f"restore the ledger topics of the target, or empty orders and reset the topic: {RESET}",
    ),
    "retention overran": (
        Case(source=source((55, 100, 100)), positions=OPENED),
        State.OVERRUN,
        "orders-0: offsets [40, 55) can no longer be read, the log now starts at 55; nothing after them is copied",
        "restore them at the source, or approve the gap: kafka-replication approve-gap orders-dr.yaml --topic orders --partition 0 "
        '--from 40 --until 55 --target-topic orders --reason "..."',
    ),
    "source truncated": (
        Case(source=source((0, 37, 37)), positions=OPENED),
        State.TRUNCATED,
        "orders-0: the source ends at 37, 3 offsets below the position 40: it was truncated after its records were copied",
        "find out which records the source lost (unclean leader election, restored disk); no gap can be approved, because the "
        "copies differ from the source now: re-create orders and reset the topic: "
        f"{RESET}",
    ),
    "target topic missing": (
        Case(target={}, config={"target_topics": {"create": False}}),
        State.TARGET_MISSING,
        "orders-0: the target topic orders does not exist and target_topics.create is false",
        "create it with at least as many partitions as the source, or set target_topics.create: true",
    ),
    "fewer target partitions, once opened": (
        Case(target={"orders": topic("orders", "t-orders")}, positions=OPENED),
        State.FEWER_PARTITIONS,
        "orders-0: orders has 0 partitions, the source 1",
        "add partitions: kafka-topics.sh --alter --topic orders --partitions 1",
    ),
}


@pytest.mark.parametrize(("case", "state", "what", "remedy"), REFUSED.values(), ids=REFUSED)
def test_why_a_partition_is_refused(case: Case, state: State, what: str, remedy: str) -> None:
    made = case.one()
    assert (made.state, made.what, made.remedy) == (state, what, remedy)
    assert made.refused
    assert made.copy is None
    assert bool(made.verify) is (state is State.FOREIGN)  # ours are read back, whatever lies behind them
    assert case.plan().refused == (made,)
    assert case.plan().idle is (state is not State.FOREIGN)


@pytest.mark.parametrize(
    ("config", "was"),
    [
        ({"partitioning": "by_key"}, spread("by_key", 9, 0, 10)),
        ({"partitioning": "by_key", "target_topics": {"partitions": 3}}, spread("by_key", 9)),
        ({"partitioning": "round_robin"}, spread("round_robin", 9, 0)),
        ({"partitioning": "a.b:c"}, spread("by_key", 9, 0, 10)),
        ({"partitioning": "map", "partition_map": {"0": 2}}, spread("map", 0, 0, 10, mapped="2")),
        ({"partitioning": "map", "partition_map": {"0": 2}}, spread("map", 10, 0, 0, mapped="0")),
    ],
)
def test_a_change_of_partitioning_that_the_file_states_goes_on_and_is_told(
    config: Mapping[str, Any], was: Position
) -> None:
    planned = Case(positions={key(): was}, target=THREE, config=config).one()
    assert (planned.state, planned.copy) == (State.BEHIND, OffsetRange(40, 100))
    assert was.spread is not None
    changed = (was.spread.by.name, was.spread.by.partitions) != (config["partitioning"], 3) or was.spread.by.hash == "0"
    assert ("records of one key may lie in two partitions" in planned.what) is changed


def test_a_position_behind_an_approved_gap_alone_may_be_spread() -> None:
    gap = replace(position(40), target_end=0)
    assert Case(positions={key(): gap}, config={"partitioning": "by_key"}).one().state is State.BEHIND


def test_a_target_of_any_size_is_opened_where_records_are_spread() -> None:
    case = Case(source=source((0, 100, 100), (0, 5, 5)), config={"partitioning": "by_key"})
    assert [planned.state for planned in case.plan().partitions] == [State.OPENING] * 2
    sick = replace(THREE["orders"], partitions={**THREE["orders"].partitions, 2: Problem("it has no leader", "wait")})
    refused = replace(case, target={"orders": sick}).plan().partitions
    assert [planned.state for planned in refused] == [State.UNREADABLE] * 2  # any record may go there


def test_the_most_fundamental_reason_comes_first() -> None:
    """A re-created source looks truncated and overrun as well; only the first says what to do."""
    case = Case(source=source((0, 3, 3), topic_id="s-other"), target={}, positions=OPENED, watermarks={key(): 99})
    assert case.one().state is State.SOURCE_RECREATED
    assert replace(case, source=source((0, 3, 3))).one().state is State.TARGET_RECREATED
    assert replace(case, source=source((0, 3, 3)), target=Case().target).one().state is State.LEDGER_LOST
    assert replace(case, source=source((50, 50, 50)), target=Case().target, watermarks={}).one().state is State.OVERRUN


def test_every_refusal_is_one_and_every_state_has_a_case_here() -> None:
    covered = {state for _, state, *_ in WORK.values()} | {state for _, state, *_ in REFUSED.values()}
    assert set(State) - covered == {
        State.LATE_GAP,
        State.VANISHED,
        State.NOT_OPENED,
        State.UNREADABLE,
        State.UNFIT,
        State.DELETED,
    }  # below; `NOT_OPENED` is what opening found
    below = {State.LATE_GAP, State.VANISHED, State.NOT_OPENED, State.UNREADABLE, State.UNFIT}
    assert {state for _, state, *_ in REFUSED.values()} | below == REFUSALS


# --- partitions and topics that come and go -----------------------------------------------------------------------------------------


def test_a_new_partition_beyond_the_targets_is_refused_and_the_others_go_on() -> None:
    refuse = {"target_topics": {"partitions": "refuse"}}
    made = Case(source=source((0, 100, 100), (0, 5, 5)), positions={key(): position(40)}, config=refuse).plan()
    assert [(each.key.source.partition, each.state) for each in made.partitions] == [
        (0, State.BEHIND),
        (1, State.FEWER_PARTITIONS),
    ]
    assert made.partitions[1].what == "orders-1: orders has 1 partitions, the source 2"
    assert made.partitions[1].remedy == "add partitions: kafka-topics.sh --alter --topic orders --partitions 2"
    assert made.to_copy == (made.partitions[0],)


def test_a_partition_beyond_the_targets_is_opened_if_the_target_follows() -> None:
    made = Case(source=source((0, 100, 100), (0, 5, 5))).plan()
    assert [(each.state, each.copy) for each in made.partitions] == [
        (State.OPENING, OffsetRange(0, 100)),
        (State.OPENING, OffsetRange(0, 5)),
    ]


def test_a_refused_partition_holds_up_no_other_in_the_first_run() -> None:
    refuse = {"target_topics": {"partitions": "refuse"}}
    made = Case(source=source((0, 100, 100), (0, 5, 5)), config=refuse).plan()
    assert [each.state for each in made.partitions] == [State.OPENING, State.FEWER_PARTITIONS]


def test_without_a_ledger_nothing_is_opened() -> None:
    """The partition may have been copied before."""
    made = Case(source=source((0, 100, 100), (0, 5, 5)), target=GROWN_TARGET, watermarks={key(): 40}).plan()
    assert [each.state for each in made.partitions] == [State.LEDGER_LOST, State.NOT_OPENED]
    assert made.partitions[0].what in made.partitions[1].what


def test_a_target_that_holds_records_or_does_not_answer_is_not_opened() -> None:
    made = Case(source=source((0, 100, 100), (0, 5, 5), (0, 5, 5)), target=GROWN_TARGET).plan()
    unknown = Problem("no answer", "wait")
    refused = refuse_occupied(
        made.partitions, {key(partition=1): (key(partition=1).target, 7)}, {key(partition=2): unknown}
    )
    assert {each.source.partition for each in refused} == {1, 2}
    assert all(each.refused and each.copy is None for each in refused.values())
    assert "orders-1 on the target already holds records (the first at offset 7)" in refused[key(partition=1)].what
    assert unknown.what in refused[key(partition=2)].what and refused[key(partition=2)].remedy == "wait"
    assert refuse_occupied(made.partitions, {}, {}) == {}


# --- partitions of the first opening that could not be opened -----------------------------------------------------------------------

TIME = "2030-01-01T00:00:00.000Z"


def start(offset: int | None, start_from: str = "latest", topic_id: str = "s-orders") -> Start:
    return Start(source_cluster="SRC", source_topic=topic_id, start_from=start_from, offset=offset, time=TIME)


SECOND = key(partition=1)
LATER = Case(
    source=source((0, 100, 100), (0, 70, 70)),
    target={"orders": topic("orders", "t-orders", (0, 9999, 9999), (0, 9999, 9999))},
    positions={key(): position(100, start=100)},
    starts={SECOND.source: 70},
    config={"start_from": "latest"},
)


def test_a_stored_start_is_not_resolved_again() -> None:
    made = replace(LATER, stored={SECOND: start(50)}).one(SECOND)
    assert (made.state, made.start, made.copy) == (State.OPENING, 50, OffsetRange(50, 70))


def test_a_start_that_nobody_could_resolve_is_resolved_now() -> None:
    made = replace(LATER, stored={SECOND: start(None)}).one(SECOND)
    assert (made.state, made.start, made.copy) == (State.OPENING, 70, None)


def test_a_stored_start_below_the_log_start_is_opened_there_so_that_the_gap_is_seen() -> None:
    grown = source((0, 100, 100), (60, 70, 70))
    assert replace(LATER, source=grown, stored={SECOND: start(50)}).one(SECOND).start == 50


@pytest.mark.parametrize(
    ("stored", "starts_at"),
    [(start(50, "earliest"), 70), (start(50, topic_id="s-other"), 0), (start(50), 50)],
    ids=["start_from was changed", "the topic was re-created", "valid"],
)
def test_a_stored_start_is_for_one_topic_and_one_setting(stored: Start, starts_at: int) -> None:
    assert replace(LATER, stored={SECOND: stored}).one(SECOND).start == starts_at


def test_what_the_first_opening_could_not_open_is_remembered() -> None:
    first = replace(LATER, positions={}, config={"start_from": "latest", "target_topics": {"partitions": "refuse"}})
    first = replace(first, target=Case().target)
    assert first.to_remember() == {SECOND: start(70)}
    silent = {"orders": replace(first.source["orders"], partitions={0: PartitionOffsets(0, 9, 9), 1: SILENT})}
    assert replace(first, source=silent).to_remember() == {SECOND: start(None)}
    assert replace(first, source=silent, stored={SECOND: start(None)}).to_remember() == {}
    assert replace(first, stored={SECOND: start(None)}).to_remember() == {SECOND: start(70)}
    assert replace(first, stored={SECOND: start(50)}).to_remember() == {}
    assert replace(first, positions={key(): position(100)}).to_remember() == {}, "it appeared later"


# --- what does not answer -------------------------------------------------------------------------------------------------------------

SILENT = Problem("no answer", "start the broker")


def silent(name: str, topic_id: str, *offsets: tuple[int, int, int]) -> Topic:
    """The last of its partitions does not answer."""
    made = topic(name, topic_id, *offsets)
    return replace(made, partitions={**made.partitions, len(offsets) - 1: SILENT})


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("opened", [False, True])
def test_a_partition_that_does_not_answer_holds_up_no_other(side: str, opened: bool) -> None:
    positions = {key(partition=number): position(40) for number in range(2)} if opened else {}
    case = Case(source=source((0, 100, 100), (0, 100, 100)), target=GROWN_TARGET, positions=positions)
    sick = {"orders": silent("orders", f"{side[0]}-orders", (0, 100, 100), (0, 100, 100))}
    made = (replace(case, source=sick) if side == "source" else replace(case, target=sick)).plan()
    assert [each.state for each in made.partitions] == [State.BEHIND if opened else State.OPENING, State.UNREADABLE]
    assert (made.partitions[1].what, made.partitions[1].remedy) == ("no answer", "start the broker")
    assert made.partitions[1].position == (40 if opened else 0)


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize(
    "unfit",
    [
        {"audit": replace(topic("audit", "t-audit", (0, 0, 0)), config={"message.timestamp.type": "LogAppendTime"})},
        {"audit": replace(topic("audit", "", (0, 0, 0)), problem=SILENT)},
    ],
    ids=["LogAppendTime", "cannot be described or created"],
)
def test_a_topic_that_does_not_fit_holds_up_no_other(unfit: dict[str, Topic], opened: bool) -> None:
    ids = Ids("SRC", "s-audit", "t-audit")
    positions = {key(): position(40), key("audit"): position(5, ids=ids)} if opened else {}
    made = Case(source={**source((0, 100, 100)), "audit": AUDIT}, target={**GROWN_TARGET, **unfit}, positions=positions)
    states = {each.key.source.topic: each.state for each in made.plan().partitions}
    assert states == {"audit": State.UNFIT, "orders": State.BEHIND if opened else State.OPENING}


def test_an_illegal_target_name_holds_up_no_other() -> None:
    long = "audit" + "x" * 244
    made = Case(
        source={**source((0, 100, 100)), long: topic(long, "s-long", (0, 10, 10))},
        config={"topics": {"include": ["^orders", "^audit"], "rename": "dr.{topic}"}},
        target={},
    ).plan()
    assert [each.state for each in made.partitions] == [State.UNFIT, State.OPENING]


GROWN_TARGET = {
    "orders": topic("orders", "t-orders", (0, 9999, 9999), (0, 9999, 9999)),
    "audit": topic("audit", "t-audit", (0, 0, 0)),
}
OPENED_FROM_LATEST = {key(): position(100, start=100)}


@pytest.mark.parametrize("start_from", ["earliest", "latest"])
def test_a_partition_that_appears_later_starts_at_its_beginning(start_from: str) -> None:
    at = key(partition=1)
    case = Case(
        source=source((0, 100, 100), (0, 7, 7)),
        target=GROWN_TARGET,
        positions=OPENED_FROM_LATEST,
        starts={at.source: 7},
        config={"start_from": start_from},
    )
    made = case.one(at)
    assert (made.state, made.start, made.copy) == (State.OPENING, 0, OffsetRange(0, 7))


def test_a_topic_that_appears_later_starts_at_its_beginning() -> None:
    at = key("audit")
    case = Case(
        source={**source((0, 100, 100)), "audit": AUDIT},
        target=GROWN_TARGET,
        positions=OPENED_FROM_LATEST,
        starts={at.source: 10},
        config={"start_from": "latest"},
    )
    made = case.one(at)
    assert (made.state, made.start, made.copy) == (State.OPENING, 0, OffsetRange(0, 10))


@pytest.mark.parametrize("start_from", ["earliest", "latest"])
def test_a_partition_that_appears_later_and_lost_its_beginning_is_a_gap(start_from: str) -> None:
    at = key(partition=1)
    case = Case(
        source=source((0, 100, 100), (3, 7, 7)),
        target=GROWN_TARGET,
        positions=OPENED_FROM_LATEST,
        config={"start_from": start_from},
    )
    made = case.one(at)
    assert (made.state, made.copy, made.refused) == (State.LATE_GAP, None, True)
    assert made.what == "orders-1 appeared after the replication began, and its offsets [0, 3) can no longer be read"
    assert made.remedy == (
        "approve the gap; the partition then starts at its current log start: "
        'kafka-replication approve-gap orders-dr.yaml --topic orders --partition 1 --from 0 --until 3 --target-topic orders --reason "..."'
    )


def test_a_topic_that_appears_later_and_lost_its_beginning_is_a_gap_when_the_start_was_not_the_earliest() -> None:
    late = topic("audit", "s-audit", (3, 10, 10))
    case = Case(source={**source((0, 100, 100)), "audit": late}, target=GROWN_TARGET, positions=OPENED_FROM_LATEST)
    assert replace(case, config={"start_from": "latest"}).one(key("audit")).state is State.LATE_GAP
    # `earliest` promises what the log still holds when the topic is met for the first time.
    assert case.one(key("audit")).copy == OffsetRange(3, 10)


def test_partitions_that_a_recreated_source_topic_no_longer_has_are_left_behind_once_the_topic_was_reset() -> None:
    old = {key(partition=number): position(40, ids=Ids("SRC", "old", "t-orders")) for number in range(2)}
    before = Case(positions=old)
    assert [each.state for each in before.plan().partitions] == [State.SOURCE_RECREATED, State.VANISHED]
    reset = Case(positions={**old, key(): Position(generation=2, ids=IDS, start=0, next_offset=0)})
    assert [(each.key, each.state) for each in reset.plan().partitions] == [(key(), State.BEHIND)]


@pytest.mark.parametrize(
    ("gone", "left", "include"),
    [
        ("topic that the file names", {"audit": AUDIT}, ["orders", "^audit"]),
        ("partition", {"orders": topic("orders", "s-orders"), "audit": AUDIT}, ["^orders", "^audit"]),
        ("everything", {}, ["^orders", "^audit"]),
    ],
)
def test_a_source_that_vanished_is_refused_by_name(gone: str, left: dict[str, Topic], include: list[str]) -> None:
    config = {"topics": {"include": include}}
    made = Case(source=left, target=GROWN_TARGET, positions=OPENED, watermarks={key(): 40}, config=config).one(key())
    assert made.state is State.VANISHED
    assert made.refused
    assert made.what == "orders-0: the source topic or partition is gone; its copy ends at 40"
    assert made.remedy == "exclude orders from the replication if that is intended"
    assert (made.position, made.source_end, made.watermark, made.copy) == (40, 40, 40, None)


def test_a_deleted_topic_that_a_pattern_selected_is_noted_once_and_still_verified() -> None:
    case = Case(source={"audit": AUDIT}, target=GROWN_TARGET, positions=OPENED, verified={key(): verified(30)})
    made = case.one(key())
    assert (made.state, made.refused, made.copy, made.verify.encode()) == (State.DELETED, False, None, [[30, 40]])
    assert case.plan().notes == (made.what,) and "orders" in made.what
    elsewhere = replace(case.snapshot, only=frozenset({"audit"}))
    assert not plan(replication(), elsewhere, case.ledger, {}).notes, "nobody asked whether it is still there"
    noted = replace(case, deleted={key(): Deleted(source_topic="s-orders", run_id="run-1", time=TIME)})
    assert (noted.one(key()).state, noted.plan().notes) == (State.DELETED, ())
    again = replace(case, deleted={key(): Deleted(source_topic="s-older", run_id="run-1", time=TIME)})
    assert again.plan().notes == (made.what,)


def test_a_vanished_topic_that_is_no_longer_selected_is_nobodys_business() -> None:
    case = Case(
        source={"audit": AUDIT}, target=GROWN_TARGET, positions=OPENED, config={"topics": {"include": ["audit"]}}
    )
    assert [each.key for each in case.plan().partitions] == [key("audit")]


# --- what a plan carries --------------------------------------------------------------------------------------------------------------


def test_a_plan_carries_what_the_ledger_says_of_the_partition() -> None:
    opened = position(40, start=10, generation=3)
    made = Case(positions={key(): opened}, watermarks={key(): 35}).one()
    assert (made.ids, made.generation, made.start, made.position) == (IDS, 3, 10, 40)
    assert (made.source_end, made.watermark, made.leader_epoch) == (100, 35, 4)
    assert str(made) == "orders-0 -> orders: behind, copy [40, 100)"


def test_a_new_partition_carries_the_ids_it_will_be_opened_with() -> None:
    assert Case().one().ids == IDS
    assert Case().one().generation == 1
    assert Case(target={}).one().ids == Ids("SRC", "s-orders", "")


def test_renamed_topics_are_looked_up_under_their_target_name() -> None:
    case = Case(
        target={"dr.orders": topic("dr.orders", "t-dr", (0, 0, 0))},
        config={"topics": {"include": ["orders"], "rename": "dr.{topic}"}},
    )
    made = case.one()
    assert (made.key, made.ids.target_topic) == (key(target="dr.orders"), "t-dr")


def test_partitions_come_in_order_and_the_longest_is_copied_first() -> None:
    made = Case(
        source={
            "orders": topic("orders", "s-orders", (0, 5, 5), (0, 9, 9)),
            "audit": topic("audit", "s-audit", (0, 7, 7), (0, 0, 0)),
        },
        target={},
    ).plan()
    assert [str(each.key.source) for each in made.partitions] == ["audit-0", "audit-1", "orders-0", "orders-1"]
    assert [str(each.key.source) for each in made.to_copy] == ["orders-1", "audit-0", "orders-0"]
    assert not made.idle


def test_only_what_is_copied_and_not_verified_is_pending() -> None:
    made = Case(
        source=source((0, 100, 100), (0, 9, 9)),
        target=GROWN_TARGET,
        positions={key(): position(100), key(partition=1): position(9)},
        verified={key(): verified(100)},
    ).plan()
    assert [each.key for each in made.pending] == [key(partition=1)]
    assert not made.idle
