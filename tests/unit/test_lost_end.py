"""What the ledger says once the target lost the end of a log, or does not show it: what is copied again, or why not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kafka_replication.ledger.account import Change
from kafka_replication.ledger.entries import Gap, Handled, Ids, Position, Receipt, Removed, Verified
from kafka_replication.ledger.placement import KafkaPartitions, KafkaSegments, Part, Segment, SpreadEnds
from kafka_replication.ledger.receipts import Receipts, StoredReceipt
from kafka_replication.ledger.view import LedgerView, copied_until
from kafka_replication.model.choices import PartitionedBy
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.planning.lost_end import (
    NotProven,
    counts,
    in_doubt,
    proven_lost,
    seen_in,
    standing_until,
    take_back,
    taken_back_since,
)
from kafka_replication.planning.plan import PartitionPlan, Plan, State

KEY = PartitionKey("orders-dr", TopicPartition("orders", 0), "orders")
IDS = Ids("SRC", "s", "t")
STAMP = ("run", "now")
SET = Coverage.of


def receipt(from_: int, until: int, **more: Any) -> Receipt:
    """A chunk whose records lie at the same offsets of the target, a marker for each chunk of 10 before them."""
    first = from_ + from_ // 10
    count = until - from_
    segment = Segment(partition=0, first=first, last=first + count - 1, count=count, digest="d")
    made = Receipt(
        generation=1,
        range=OffsetRange(from_, until),
        count=count,
        bytes=0,
        digest="d",
        digest_kind="k",
        engine="e",
        placement=KafkaSegments((segment,)),
        ids=IDS,
        run_id="r",
        time="t",
    )
    return replace(made, **more)


CHUNKS = [receipt(0, 10), receipt(10, 20), receipt(20, 30)]  # on the target [0, 10) [11, 21) [22, 32)


def read(receipts: Sequence[Receipt], expired: int = 0) -> Receipts:
    number = KEY.ledger_partition
    stored = tuple(StoredReceipt(at, one) for at, one in enumerate(receipts) if at >= expired)
    return Receipts(stored={KEY: stored}, since={KEY: 0}, log_starts={number: expired}, ends={number: len(receipts)})


def ledger(*, verified: int = 30, **more: Any) -> LedgerView:
    position = Position(
        generation=1, ids=IDS, start=0, next_offset=30, coverage=SET([OffsetRange(0, 30)]), target_end=32
    )
    done = Verified(generation=1, coverage=SET([OffsetRange(0, verified)]), level="digest", run_id="r", time="t")
    return LedgerView({KEY: position}, {KEY: done}, **more)


def after(view: LedgerView, change: Change) -> LedgerView:
    """The ledger once these entries are written."""
    for entry in change.write:
        match entry:
            case Position():
                view = replace(view, positions={KEY: entry})
            case Verified():
                view = replace(view, verified={KEY: entry})
            case Removed():
                view = replace(view, removed={KEY: entry})
    return view


@pytest.mark.parametrize(
    ("end", "again", "target_end"),
    [
        (33, "nothing", 32),
        (32, "nothing", 32),
        (31, "[20, 30)", 21),
        (22, "[20, 30)", 21),
        (21, "[20, 30)", 21),
        (20, "[10, 30)", 10),
        (0, "[0, 30)", 0),
    ],
)
def test_every_chunk_that_reaches_above_the_end_is_copied_again(end: int, again: str, target_end: int) -> None:
    view = ledger()
    taken = take_back(view[KEY], read(CHUNKS), {0: end}, STAMP)
    assert str(taken.offsets) == again
    left = [one for one in CHUNKS if one not in taken.change.delete]
    now = after(view, taken.change)
    assert now[KEY].contradictions() == now[KEY].contradictions_in(read(left)) == []
    assert now.positions[KEY].target_end == target_end
    assert copied_until(now.positions[KEY]) == (taken.offsets.ranges[0].from_ if taken.offsets else 30)
    assert str(now[KEY].missed()) == again
    assert now[KEY].watermark() == 30, "the watermark stays, and does not pass what is missing"
    assert not now[KEY].verified.coverage.intersection(taken.offsets)


def empty(from_: int, until: int) -> Receipt:
    return receipt(from_, until, count=0, placement=KafkaSegments())


def test_chunks_without_records_behind_them_are_read_again_so_that_nothing_newer_comes_first() -> None:
    """One in the middle of what stands is left."""
    view = ledger()
    moved = replace(view.positions[KEY], next_offset=40, coverage=SET([OffsetRange(0, 40)]))
    view = replace(view, positions={KEY: moved})
    known = [CHUNKS[0], empty(10, 15), receipt(15, 20), receipt(20, 30), empty(30, 40)]
    known[2] = replace(known[2], placement=CHUNKS[1].placement)
    taken = take_back(view[KEY], read(known), {0: 22}, STAMP)
    assert str(taken.offsets) == "[20, 40)"
    assert copied_until(after(view, taken.change).positions[KEY]) == 20


@pytest.mark.parametrize(
    ("known", "expired", "end", "why"),
    [
        ([CHUNKS[0], CHUNKS[2]], 0, 15, r"no receipt of \[10, 20\)"),
        ([CHUNKS[2], CHUNKS[1], replace(CHUNKS[0], placement=CHUNKS[2].placement)], 1, 22, r"no receipt of \[20, 30\)"),
        ([CHUNKS[0], CHUNKS[1], CHUNKS[2]], 1, 22, None),
    ],
    ids=["one in the middle is missing", "an expired one of newer offsets", "an older one expired"],
)
def test_a_receipt_that_is_missing_may_be_of_something_that_is_lost(
    known: list[Receipt], expired: int, end: int, why: str | None
) -> None:
    if why is None:
        assert str(take_back(ledger()[KEY], read(known, expired), {0: end}, STAMP).offsets) == "[20, 30)"
    else:
        with pytest.raises(NotProven, match=why):
            take_back(ledger()[KEY], read(known, expired), {0: end}, STAMP)


BY_KEY = PartitionedBy(name="by_key", hash="", partitions=2)


def spread(*places: tuple[int, int, int]) -> KafkaPartitions:
    """The place of a chunk in these target partitions: number, first offset, end."""
    parts = (
        Part(partition=number, offsets=SET([OffsetRange(from_, until)]), count=until - from_, digest="d")
        for number, from_, until in places
    )
    return KafkaPartitions(BY_KEY, tuple(parts))


def test_chunks_that_another_target_partition_still_shows_are_told() -> None:
    """Copied again, their records there would be doubled."""
    chunks = [
        receipt(0, 10, placement=spread((0, 0, 10))),
        receipt(10, 20, placement=spread((0, 11, 15), (1, 0, 6))),
        receipt(20, 30, placement=spread((0, 16, 26))),
    ]
    view = ledger()
    moved = replace(view.positions[KEY], spread=SpreadEnds(BY_KEY, (26, 6)))
    view = replace(view, positions={KEY: moved})
    taken = take_back(view[KEY], read(chunks), {0: 11}, STAMP)
    assert (str(taken.offsets), str(taken.standing)) == ("[10, 30)", "[10, 20)")
    assert (str(taken.at(0)), str(taken.at(1))) == ("[11, 15) [16, 26)", "[0, 6)")
    assert not take_back(view[KEY], read(chunks), {0: 16}, STAMP).standing
    assert not take_back(view[KEY], read(chunks), {0: 11, 1: 0}, STAMP).standing


def test_what_it_was_before_can_be_written_again() -> None:
    view = ledger(verified=20)
    taken = take_back(view[KEY], read(CHUNKS), {0: 22}, STAMP)
    again = after(after(view, taken.change), taken.back)
    assert again.positions == view.positions and again.verified == view.verified
    assert not again[KEY].gone() and taken.back.write[-1] == CHUNKS[-1]


def retried(range_: OffsetRange) -> Handled:
    return Handled(
        generation=1,
        state="retried",
        quarantined=SET([range_]),
        skipped=Coverage(),
        ids=IDS,
        by="b",
        reason="r",
        run_id="r",
        time="t",
        count=0,
        digest="d",
        digest_kind="k",
        placement=KafkaSegments(),
    )


@pytest.mark.parametrize(
    ("view", "receipts", "end", "why"),
    [
        (ledger(), read(CHUNKS[:2]), 22, "do not say what stood"),
        (ledger(), read(CHUNKS, expired=2), 5, "have expired"),
        (ledger(removed={KEY: Removed(generation=1, target_start=11)}), read(CHUNKS), 10, "retention"),
        (ledger(handled={KEY: (retried(OffsetRange(25, 26)),)}), read(CHUNKS), 22, "retried"),
        (ledger(), read([*CHUNKS[:2], receipt(20, 30, delivery="at_least_once")]), 22, "without transactions"),
    ],
    ids=["no receipt", "expired", "below its log start", "retried", "without transactions"],
)
def test_what_is_not_proven_is_left_to_a_person(view: LedgerView, receipts: Receipts, end: int, why: str) -> None:
    with pytest.raises(NotProven, match=why):
        take_back(view[KEY], receipts, {0: end}, STAMP)


def test_what_retention_removed_is_not_copied_twice() -> None:
    """A later backfill gives back what `removed` names, so the chunk must not be named there any more."""
    gone = SET([OffsetRange(0, 25)])
    entry = Removed(generation=1, target_start=27, coverage=gone, unexplained=gone)
    view = ledger(removed={KEY: entry})
    now = after(view, take_back(view[KEY], read(CHUNKS), {0: 30}, STAMP).change)
    assert str(now.removed[KEY].coverage) == str(now.removed[KEY].unexplained) == "[0, 20)"
    assert str(now.removed[KEY].recopy_allowed) == "[20, 30)"


def planned(copy: OffsetRange | None, missed: Coverage = Coverage()) -> Plan:  # noqa: B008
    partition = PartitionPlan(
        key=KEY,
        state=State.BEHIND,
        ids=IDS,
        generation=1,
        start=0,
        position=30,
        source_end=50,
        watermark=30,
        copy=copy,
        missed=missed,
    )
    return Plan("orders-dr", (partition,))


@pytest.mark.parametrize(
    ("plan", "stale"),
    [
        (planned(OffsetRange(30, 50)), True),
        (planned(OffsetRange(20, 50)), False),
        (planned(OffsetRange(20, 25)), False),
        (planned(OffsetRange(30, 50), SET([OffsetRange(20, 30)])), False),
        (planned(None), False),
    ],
    ids=["newer offsets alone", "with them", "a backfill", "the source lost them, too", "nothing to copy"],
)
def test_a_plan_from_before_it_is_told(plan: Plan, stale: bool) -> None:
    view = ledger()
    assert taken_back_since(plan, view) is None
    now = after(view, take_back(view[KEY], read(CHUNKS), {0: 22}, STAMP).change)
    assert taken_back_since(plan, now) == (KEY if stale else None)


MOVED = replace(ledger().positions[KEY], next_offset=40, coverage=SET([OffsetRange(0, 40)]), target_end=43)
FOURTH = receipt(30, 40)


@pytest.mark.parametrize(
    ("hidden", "receipts", "stands", "counted"),
    [
        ([MOVED, FOURTH], CHUNKS, True, True),
        ([MOVED, FOURTH], CHUNKS, False, False),
        ([MOVED], [*CHUNKS, FOURTH], False, True),
        ([MOVED], CHUNKS, True, False),
        ([CHUNKS[2]], CHUNKS[:2], False, True),
        ([FOURTH], CHUNKS, True, False),
        ([replace(MOVED, generation=2)], CHUNKS, False, True),
        (
            [
                MOVED,
                Gap(
                    generation=1,
                    kind="retention",
                    range=OffsetRange(30, 40),
                    reason="r",
                    approved_by="a",
                    ids=IDS,
                    run_id="r",
                    time="t",
                ),
            ],
            CHUNKS,
            False,
            True,
        ),
    ],
    ids=[
        "its records stand",
        "they do not",
        "its receipt is there",
        "it was dropped",
        "the position has it",
        "the position does not",
        "a reset",
        "an approved gap",
    ],
)
def test_a_hidden_part_of_the_ledger_follows_what_is_visible_of_its_transaction(
    hidden: Sequence[Any], receipts: Sequence[Receipt], stands: bool, counted: bool
) -> None:
    assert counts(KEY, hidden, ledger(), receipts, lambda _: stands) is counted


def test_one_part_that_stands_shows_that_the_hidden_receipt_was_committed() -> None:
    """The partition of another part had no leader either."""
    receipt = replace(FOURTH, placement=spread((0, 33, 40), (1, 0, 3)))
    assert counts(KEY, [MOVED, receipt], ledger(), CHUNKS, lambda part: part.partition == 1)
    assert not counts(KEY, [MOVED, receipt], ledger(), CHUNKS, lambda _: False)


def test_a_last_record_is_in_doubt_once_the_leader_epoch_is_another_one() -> None:
    position = ledger().positions[KEY]
    assert in_doubt(KEY, position, {0: 7}) == {0: 32}, "it is not known who led when it was written"
    seen = seen_in(KEY, position, {0: 7})
    assert in_doubt(KEY, seen, {0: 7}) == {} and in_doubt(KEY, seen, {0: 8}) == {0: 32}
    assert in_doubt(KEY, replace(seen, target_end=0), {0: 8}) == {}
    by = PartitionedBy(name="by_key", hash="h", partitions=3)
    spread = seen_in(KEY, replace(position, spread=SpreadEnds(by, (5, 0, 9))), {0: 7, 2: 7})
    assert in_doubt(KEY, spread, {0: 7, 1: 9, 2: 8}) == {2: 9}


@pytest.mark.parametrize(
    ("receipts", "expired", "config", "lost"),
    [
        pytest.param(CHUNKS, 0, {}, {0}, id="a receipt names it"),
        pytest.param(CHUNKS[:2], 0, {}, set(), id="no receipt reaches so far: it was somebody else's"),
        pytest.param(CHUNKS, 3, {}, {0}, id="all receipts have expired: the only writer"),
        pytest.param(
            [replace(one, time="2020-01-01T00:00:00.000Z") for one in CHUNKS],
            0,
            {"cleanup.policy": "compact", "delete.retention.ms": "86400000"},
            set(),
            id="it may be a tombstone that compaction removed",
        ),
        pytest.param(
            [*CHUNKS[:2], replace(CHUNKS[2], time="9999-01-01T00:00:00.000Z")],
            0,
            {"cleanup.policy": "compact", "delete.retention.ms": "86400000"},
            {0},
            id="compaction removes no young tombstone",
        ),
    ],
)
def test_a_last_record_that_is_missing_is_lost_if_it_was_ours(
    receipts: list[Receipt], expired: int, config: dict[str, str], lost: set[int]
) -> None:
    assert proven_lost(ledger()[KEY], read(receipts, expired), {0: 32}, config) == lost


def test_where_another_source_partition_may_have_a_newer_record_of_the_key_compaction_explains_all() -> None:
    view, by = ledger(), PartitionedBy(name="by_key", hash="h", partitions=1)
    shared = replace(view.positions[KEY], spread=SpreadEnds(by, (32,)))
    assert proven_lost(replace(view, positions={KEY: shared})[KEY], read(CHUNKS), {0: 32}, {}) == {0}
    compacted = {"cleanup.policy": "compact", "delete.retention.ms": "86400000000000"}
    assert proven_lost(replace(view, positions={KEY: shared})[KEY], read(CHUNKS), {0: 32}, compacted) == set()


def test_what_stands_ends_with_the_last_chunk_whose_last_record_is_there() -> None:
    parts = [part for one in CHUNKS for part in one.parts]
    assert standing_until(parts, 0, 40, lambda part: True) == 32
    assert standing_until(parts, 0, 40, lambda part: part.until <= 21) == 21, "aborted records lie in its place"
    assert standing_until(parts, 0, 31, lambda part: True) == 21
    assert standing_until(parts, 0, 40, lambda part: False) == standing_until(parts, 1, 40, lambda part: True) == 0
