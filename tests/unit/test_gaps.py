"""What is lost, and what crossing it does to a position, whatever was copied around it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.documents import as_json, listed
from kafka_replication.ledger.entries import Gap, Ids, Position, Receipt, Removed, Verified
from kafka_replication.ledger.placement import KafkaSegments, Segment
from kafka_replication.ledger.receipts import Receipts, StoredReceipt
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.planning import refusals

IDS = Ids("SRC", "s", "t")
KEY = PartitionKey("orders-dr", TopicPartition("orders", 3), "dr.orders")
RANGES = st.tuples(st.integers(0, 60), st.integers(1, 12)).map(lambda each: OffsetRange(each[0], sum(each)))
POSITIONS = st.tuples(st.integers(0, 30), st.lists(RANGES, max_size=5)).map(lambda each: copied(*each))


def copied(start: int, ranges: list[OffsetRange]) -> Position:
    """A partition that was opened at ``start`` and copied in these ranges, live or as backfills."""
    position = Position(generation=1, ids=IDS, start=start, next_offset=start)
    for each in ranges:
        position = position.adding(each, 7, 0)
    return position


def gap(range_: OffsetRange, generation: int = 1, kind: str = "retention") -> Gap:
    return Gap(
        generation=generation,
        kind=kind,
        range=range_,
        reason="too late",
        approved_by="ann",
        ids=IDS,
        run_id="run-1",
        time="2030-01-31T06:00:00.000Z",
    )


@given(POSITIONS, st.integers(0, 90))
def test_crossing_gap_after_gap_leads_to_the_log_start_and_gives_up_what_is_not_on_the_target_alone(
    position: Position, log_start: int
) -> None:
    begin, given_up = position, list[OffsetRange]()
    while lost := refusals.first_gap(position, log_start):
        assert lost.from_ == position.next_offset and lost.until <= log_start
        position = position.adding(lost, None, 0)
        given_up.append(lost)
    assert position.next_offset >= log_start or not given_up
    assert Coverage.of(given_up) == Coverage.of([OffsetRange(min(begin.next_offset, log_start), log_start)]).subtract(
        begin.coverage
    )
    assert position.coverage == begin.coverage.union(Coverage.of(given_up))
    assert (position.start, position.generation, position.target_end) == (
        begin.start,
        begin.generation,
        begin.target_end,
    )


def test_a_crossed_position_forgets_the_leader_epoch() -> None:
    """The last copied record's epoch may have ended inside the gap: the broker would call the offset behind it truncated."""
    crossed = copied(0, [OffsetRange(0, 50)]).adding(OffsetRange(50, 62), None, 0)
    assert (crossed.next_offset, crossed.leader_epoch) == (62, None)


def test_nothing_is_lost_up_to_the_position() -> None:
    position = copied(0, [OffsetRange(0, 50)])
    assert refusals.first_gap(position, 0) is refusals.first_gap(position, 50) is None
    assert refusals.first_gap(position, 51) == OffsetRange(50, 51)


def test_settled_is_what_was_read_back_or_given_up_in_this_generation() -> None:
    verified = Verified(
        generation=2, coverage=Coverage.of([OffsetRange(0, 50)]), level="digest", run_id="run-1", time="time"
    )
    view = LedgerView({}, {KEY: verified}, {KEY: (gap(OffsetRange(90, 99), 1), gap(OffsetRange(50, 62), 2))})
    assert view.of(KEY, 2).verified_or_waived().contiguous_end(0) == 62
    assert view.of(KEY, 2).verified.coverage.contiguous_end(0) == 50
    assert str(view.of(KEY, 1).verified_or_waived()) == "[90, 99)"
    assert not LedgerView().of(KEY, 1).verified_or_waived()


def receipt(from_: int, until: int, *firsts: int) -> Receipt:
    segments = tuple(Segment(partition=3, first=first, last=first + 4, count=5, digest="d") for first in firsts)
    return Receipt(
        generation=1,
        range=OffsetRange(from_, until),
        count=5 * len(firsts),
        bytes=0,
        digest="d",
        digest_kind="k",
        engine="e",
        placement=KafkaSegments(segments),
        ids=IDS,
        run_id="run-1",
        time="time",
    )


def read_at(log_start: int, receipts: list[Receipt]) -> Receipts:
    stored = tuple(StoredReceipt(10 + number, one) for number, one in enumerate(receipts))
    place = KEY.ledger_partition
    return Receipts(stored={KEY: stored}, since={KEY: 0}, log_starts={place: log_start}, ends={place: 99})


def test_unverifiable_is_the_first_run_of_pending_chunks_that_begin_below_the_targets_log_start() -> None:
    receipts = [receipt(20, 30, 26), receipt(0, 10, 0), receipt(10, 20, 13), receipt(30, 40), receipt(50, 60, 5)]
    account = LedgerView({KEY: copied(0, [OffsetRange(0, 60)])})[KEY]
    complete, expired = read_at(0, receipts), read_at(7, receipts)
    assert account.unverifiable(complete, {3: 0}) is None
    assert account.unverifiable(complete, {3: 14}) == OffsetRange(0, 20)
    assert account.unverifiable(complete, {3: 40}) == OffsetRange(0, 30)
    verified = Verified(generation=1, coverage=Coverage.of([OffsetRange(0, 20)]))
    assert replace(account, verified=verified).unverifiable(complete, {3: 14}) == OffsetRange(50, 60)
    assert account.unverifiable(expired, {3: 0}) == OffsetRange(40, 50)
    assert account.unverifiable(expired, {3: 14}) == OffsetRange(0, 20)
    gone = Removed(generation=1, coverage=Coverage.of([OffsetRange(35, 45)]))
    assert replace(account, removed=gone).unverifiable(complete, {3: 0}) == OffsetRange(40, 45)


def test_a_proof_given_up_is_settled_and_neither_lost_nor_read_back() -> None:
    view = LedgerView({}, {}, {KEY: (gap(OffsetRange(0, 20), kind="unverifiable"), gap(OffsetRange(20, 30)))})
    assert (
        str(view.of(KEY, 1).verified_or_waived()),
        str(view.of(KEY, 1).given_up()),
        str(view.of(KEY, 1).unproven()),
    ) == (
        "[0, 30)",
        "[20, 30)",
        "[0, 20)",
    )
    assert not view.of(KEY, 1).verified.coverage
    assert str(listed(view.gaps)[0]).startswith("UNPROVEN orders-3 [0, 20)")


def test_a_gap_names_itself_in_full() -> None:
    shown = listed({KEY: [gap(OffsetRange(50, 62))]})
    assert [str(each) for each in shown] == [
        "LOST orders-3 [50, 62): 12 offsets (retention, generation 1), given up by ann at 2030-01-31T06:00:00.000Z: too late"
    ]
    assert as_json(shown[0]) == {
        "topic": "orders",
        "partition": 3,
        "target_topic": "dr.orders",
        "generation": 1,
        "kind": "retention",
        "from": 50,
        "until": 62,
        "reason": "too late",
        "approved_by": "ann",
        "time": "2030-01-31T06:00:00.000Z",
        "run_id": "run-1",
    }
