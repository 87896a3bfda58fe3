"""Partitions and topics that come, go, or do not answer, as the planner sees them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_replication.ledger.entries import Deleted, Ids, Position, Start
from kafka_replication.model.errors import Unreachable
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning.live import plan, refuse_occupied
from kafka_replication.planning.plan import State
from kafka_replication.planning.snapshot import PartitionOffsets, Topic
from tests.support.planning import (
    AUDIT,
    GROWN_TARGET,
    IDS,
    OPENED,
    TIME,
    Case,
    key,
    position,
    replication,
    source,
    topic,
    verified,
)

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
    unknown = Unreachable("no answer", "wait")
    refused = refuse_occupied(
        made.partitions, {key(partition=1): (key(partition=1).target, 7)}, {key(partition=2): unknown}
    )
    assert {each.source.partition for each in refused} == {1, 2}
    assert all(each.refused and each.copy is None for each in refused.values())
    assert "orders-1 on the target already holds records (the first at offset 7)" in refused[key(partition=1)].what
    assert unknown.what in refused[key(partition=2)].what and refused[key(partition=2)].remedy == "wait"
    assert refuse_occupied(made.partitions, {}, {}) == {}


# --- partitions of the first opening that could not be opened -----------------------------------------------------------------------


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

SILENT = Trouble("error", "", "no answer", "start the broker")


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
