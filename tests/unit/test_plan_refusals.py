"""Why the planner refuses a partition, odd case by odd case: the state it finds, and the words for whoever is on call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kafka_replication.ledger.entries import ONE_WRITER, Position, Seal
from kafka_replication.ledger.placement import SpreadEnds
from kafka_replication.model.choices import PartitionedBy
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning.plan import REFUSALS, State
from tests.support.planning import (
    IDS,
    OPENED,
    RESET,
    THREE,
    WORK,
    Case,
    key,
    position,
    source,
    topic,
    verified,
)


def spread(name: str, *ends: int) -> Position:
    by = PartitionedBy(name=name, hash="", partitions=len(ends))
    return replace(position(40), target_end=0, spread=SpreadEnds(by, ends))


SEAL = Seal(why="failover", by="ann", reason="fire", target_until=50, run_id="over", time="2030-01-31T06:00:00Z")
CONTRADICTS = (
    f"the ledger contradicts itself: orders-0 (entries in kafka-replication.positions-{key().ledger_partition}): "
)
RESTORE = (
    "find out who changed the ledger topics, or what restored an older state of them; then restore their newest state, or"
    f" re-create orders and reset the topic: {RESET}"
)
MENDS = "the next run that is no backfill copies it again where receipts prove what stood there and the source still has it; where it says that it cannot, "
REFUSED: dict[str, tuple[Case, State, str, str]] = {
    "target truncated": (
        Case(target={"orders": topic("orders", "t-orders", (0, 30, 30))}, positions=OPENED),
        State.TARGET_TRUNCATED,
        "orders-0: orders-0 on the target ends at 30, but our records were there up to 40: the target lost its last 10 offsets"
        " after they were copied",
        MENDS
        + "find out what truncated or restored it (unclean leader election, restored disk); then re-create orders and reset the"
        f" topic: {RESET}",
    ),
    "target lost what was read back of a profile that may lose records": (
        Case(
            target={"orders": topic("orders", "t-orders", (0, 30, 30))},
            positions={key(): replace(position(40), delivery="leader_ack", target_end=50)},
            verified={key(): replace(verified(40), delivery="leader_ack", judged_until=38)},
        ),
        State.TARGET_TRUNCATED,
        "orders-0: orders-0 on the target ends at 30, but our records were there up to 38: the target lost its last 8 offsets"
        " after they were copied",
        "find out what truncated or restored it (unclean leader election, restored disk); then re-create orders and reset the"
        f" topic: {RESET}",
    ),
    "the next offset lies in the coverage": (
        Case(positions={key(): replace(position(40), next_offset=30)}),
        State.CONTRADICTED,
        f"{CONTRADICTS}the position's next offset is 30, but its coverage has 39, too",
        RESTORE,
    ),
    "the coverage does not reach the next offset": (
        Case(positions={key(): replace(position(40), next_offset=90)}),
        State.CONTRADICTED,
        f"{CONTRADICTS}the position's next offset is 90, but its coverage lacks [40, 90)",
        RESTORE,
    ),
    "more is verified than was copied": (
        Case(positions=OPENED, verified={key(): verified(70)}),
        State.CONTRADICTED,
        f"{CONTRADICTS}[40, 70) are called verified, but the position says that they were never copied",
        RESTORE,
    ),
    "it started above its next offset": (
        Case(positions={key(): replace(position(40), start=41)}),
        State.CONTRADICTED,
        f"{CONTRADICTS}the position says that it started at 41, above its next offset 40",
        RESTORE,
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
    "copied by key without transactions": (
        Case(
            positions={key(): replace(spread("by_key", 40), delivery="at_least_once")},
            config={"partitioning": "by_key"},
        ),
        State.REPARTITIONED,
        "orders-0: its records below offset 40 were copied to several partitions of orders without transactions, which is no"
        " longer supported: it is unknown what dead attempts left there",
        "set delivery: exactly_once, and replicate to another target topic (topics.rename), or re-create orders and reset the"
        f" topic: {RESET}",
    ),
    "copied without transactions, and then shared": (
        Case(
            positions={key(): replace(position(40), delivery="at_least_once")},
            config={"on_existing_target": "share"},
        ),
        State.REPARTITIONED,
        "orders-0: its records below offset 40 were copied with delivery: at_least_once: what a dead attempt left of them in"
        " orders could not be told from records of others",
        "let a run with delivery: exactly_once and on_existing_target: refuse or append copy something, then share",
    ),
    "one of several target partitions lost records": (
        Case(positions={key(): spread("by_key", 9, 0, 12)}, target=THREE, config={"partitioning": "by_key"}),
        State.TARGET_TRUNCATED,
        "orders-0: orders-2 on the target ends at 10, but our records were there up to 12: the target lost its last 2 offsets"
        " after they were copied",
        MENDS
        + "find out what truncated or restored it (unclean leader election, restored disk); then re-create orders and reset the"
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
    "sealed": (
        Case(positions={key(): replace(position(40), sealed=SEAL)}),
        State.SEALED,
        "orders-0: this direction was sealed by failover at 2030-01-31T06:00:00Z, by ann: fire; nothing more is copied to orders",
        "if the source is to be used again, and nothing was written to the target since: kafka-replication failover orders-dr.yaml"
        " --undo; if others have written there: kafka-replication failback; else remove the file or its schedule",
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
    ],
)
def test_a_change_of_partitioning_that_the_file_states_goes_on_and_is_told(
    config: Mapping[str, Any], was: Position
) -> None:
    planned = Case(positions={key(): was}, target=THREE, config=config).one()
    assert (planned.state, planned.copy) == (State.BEHIND, OffsetRange(40, 100))
    assert was.spread is not None
    changed = (was.spread.by.name, was.spread.by.partitions) != (config["partitioning"], 3)
    assert ("records of one key may lie in two partitions" in planned.what) is changed


def test_a_position_behind_an_approved_gap_alone_may_be_spread() -> None:
    gap = replace(position(40), target_end=0)
    assert Case(positions={key(): gap}, config={"partitioning": "by_key"}).one().state is State.BEHIND


TWO = source((0, 100, 100), (0, 100, 100))
WIDE = {"orders": topic("orders", "t-orders", *[(0, 50, 50)] * 3)}
BY_KEY = {"partitioning": "by_key"}


@pytest.mark.parametrize("opened", [True, False])
@pytest.mark.parametrize(
    ("before", "config"), [(position(40), BY_KEY), (spread("by_key", 40, 0, 7), {})], ids=["from keep", "to keep"]
)
def test_partitioning_changes_for_no_source_partition_of_a_topic(
    before: Position, config: Mapping[str, Any], *, opened: bool
) -> None:
    """Also if nothing of it was copied yet: no copier left anything behind that nobody could tell from others."""
    positions = {key(): before, **({key(partition=1): position(0)} if opened else {})}
    case = Case(source=TWO, target=WIDE, positions=positions, config=config)
    assert [planned.state for planned in case.plan().partitions] == [State.REPARTITIONED] * 2
    refused = case.one(key(partition=1))
    assert refused.what.startswith("orders-1: records of orders-0 were copied with partitioning ")
    assert refused.remedy.endswith(RESET)


@pytest.mark.parametrize("opened", [True, False])
def test_nobody_writes_where_the_target_lost_what_another_source_partition_has_there(*, opened: bool) -> None:
    """The log would grow over its place, and nobody would notice any more."""
    lost = spread("by_key", 9, 0, 12)
    positions = {key(partition=1): lost, **({key(): spread("by_key", 9, 0, 10)} if opened else {})}
    refused = Case(source=TWO, target=THREE, positions=positions, config=BY_KEY).one(key())
    assert refused.state is State.TARGET_TRUNCATED
    assert refused.what.startswith("orders-0: orders-2 on the target ends at 10, but our records were there up to 12")
    again = replace(lost, ids=replace(IDS, target_topic="t-earlier"))
    healthy = Case(source=TWO, target=THREE, positions={**positions, key(partition=1): again}, config=BY_KEY)
    assert not healthy.one(key()).refused


def test_a_source_partition_may_be_spread_as_others_of_its_topic_are() -> None:
    """Or if they belong to topics that were created again since, with more partitions."""
    fresh, other = {key(): position(0)}, replace(IDS, source_topic="s-earlier")
    states = [
        Case(positions={**fresh, key(partition=1): before}, target=WIDE, config=BY_KEY).one(key()).state
        for before in (spread("by_key", 40, 0, 7), position(40, ids=other))
    ]
    assert states == [State.BEHIND] * 2
    mixed = {**fresh, key(partition=1): position(40), key(partition=2): spread("by_key", 40, 0, 7)}
    assert Case(positions=mixed, target=WIDE, config=BY_KEY).one(key()).state is State.BEHIND


def test_a_target_of_any_size_is_opened_where_records_are_spread() -> None:
    case = Case(source=source((0, 100, 100), (0, 5, 5)), config={"partitioning": "by_key"})
    assert [planned.state for planned in case.plan().partitions] == [State.OPENING] * 2
    sick = replace(
        THREE["orders"], partitions={**THREE["orders"].partitions, 2: Trouble("error", "", "it has no leader", "wait")}
    )
    refused = replace(case, target={"orders": sick}).plan().partitions
    assert [planned.state for planned in refused] == [State.UNREADABLE] * 2  # any record may go there


def test_what_comes_after_others_were_sealed_is_not_begun() -> None:
    later = Case(positions={key(partition=7): replace(position(40), sealed=SEAL)}).one(key())
    assert (later.state, later.copy) == (State.SEALED, None)


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
