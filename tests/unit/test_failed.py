"""The failed records of one partition are made of receipts, decisions, and what was known of them before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from kafka_replication.ledger.entries import FailedRecord, Handled, Ids, Place, Position, Receipt, Removed
from kafka_replication.ledger.placement import KafkaSegments
from kafka_replication.ledger.receipts import Receipts, StoredReceipt
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.watermarks.failed import FailedId, FailedRow, Step, rows_of

KEY = PartitionKey("orders-dr", TopicPartition("orders", 0), "orders")
IDS = Ids("S", "s", "t")
POSITION = Position(
    generation=1, ids=IDS, start=0, next_offset=20, coverage=Coverage.of([OffsetRange(0, 20)]), quarantined=2
)
FIRST = Step("2030-01-01T00:00:00.000Z", "quarantined", "run-1")
GIVEN_UP = Step("2030-01-02T00:00:00.000Z", "discarded", "ask-1", by="ann", reason="why")
AGAIN = Step("2030-01-03T00:00:00.000Z", "quarantined", "backfill-1")
RETRIED = Step("2030-01-04T00:00:00.000Z", "retried", "ask-2", by="ben")


def failed(offset: int) -> FailedRecord:
    return FailedRecord(
        offset=offset,
        kind="refused",
        reason="no key",
        error="INVALID_RECORD",
        size=7,
        key_digest="",
        digest="d",
        place=Place("quarantine", 3, offset),
    )


def row(offset: int, *steps: Step, generation: int = 1) -> FailedRow:
    return FailedRow(key=KEY, generation=generation, record=failed(offset), history=steps)


def receipts(*offsets: int, step: Step = FIRST, range_: tuple[int, int] = (0, 20), generation: int = 1) -> Receipts:
    receipt = Receipt(
        generation=generation,
        range=OffsetRange(*range_),
        count=0,
        bytes=0,
        digest="",
        digest_kind="",
        engine="record",
        placement=KafkaSegments(),
        ids=IDS,
        run_id=step.run_id,
        time=step.time,
        quarantined=len(offsets),
        failures=tuple(failed(offset) for offset in offsets),
    )
    return Receipts(stored={KEY: (StoredReceipt(0, receipt),)}, since={KEY: 0}, log_starts={}, ends={})


def decided(step: Step, *offsets: int, given_back: Sequence[int] = ()) -> Handled:
    return Handled(
        generation=1,
        state=step.state,
        quarantined=points(*offsets),
        skipped=Coverage(),
        ids=IDS,
        by=step.by,
        reason=step.reason,
        run_id=step.run_id,
        time=step.time,
        given_back=points(*given_back),
    )


def points(*offsets: int) -> Coverage:
    return Coverage.of(OffsetRange(offset, offset + 1) for offset in offsets)


def view(*handled: Handled, again: Coverage | None = None) -> LedgerView:
    ledger = LedgerView({KEY: POSITION}, handled={KEY: handled})
    if again is None:
        return ledger
    removed = Removed(
        generation=1,
        target_start=0,
        coverage=Coverage(),
        unexplained=Coverage(),
        recopy_allowed=again,
        watermark_floor=0,
        run_id="backfill-1",
        time=AGAIN.time,
    )
    return replace(ledger, removed={KEY: removed})


def histories(rows: Mapping[FailedId, FailedRow]) -> dict[int, tuple[Step, ...]]:
    return {row.offset: row.history for row in rows.values()}


def test_receipts_name_them_and_the_ledger_says_what_was_decided() -> None:
    rows = rows_of(view(decided(GIVEN_UP, 7)), KEY, receipts(7, 8))
    assert list(rows.values()) == [row(7, FIRST, GIVEN_UP), row(8, FIRST)]
    assert [one.is_open for one in rows.values()] == [False, True]


def test_those_known_from_elsewhere_stay_when_receipts_expired() -> None:
    known = [row(7, FIRST), row(9, FIRST, generation=2)]
    assert histories(rows_of(view(decided(GIVEN_UP, 7)), KEY, known=known)) == {7: (FIRST, GIVEN_UP), 9: (FIRST,)}


@pytest.mark.parametrize("known", [(FIRST,), (FIRST, GIVEN_UP)])
def test_what_is_known_already_is_not_added_twice(known: tuple[Step, ...]) -> None:
    rows = rows_of(view(decided(GIVEN_UP, 7)), KEY, receipts(7), [row(7, *known)])
    assert histories(rows) == {7: (FIRST, GIVEN_UP)}


def test_of_offsets_that_were_given_back_only_a_receipt_counts() -> None:
    """The second copy set 7 aside again, and copied 8: what was decided about the first copies is over."""
    ledger = view(
        decided(GIVEN_UP, 7, 8, given_back=(7, 8)), decided(RETRIED, 7), again=Coverage.of([OffsetRange(0, 20)])
    )
    known = [row(7, FIRST, GIVEN_UP), row(8, FIRST, GIVEN_UP)]
    over = replace(GIVEN_UP, over=True)
    assert histories(rows_of(ledger, KEY, receipts(7, step=AGAIN), known)) == {7: (FIRST, over, AGAIN, RETRIED)}


def test_an_attempt_that_died_before_its_position_sets_nothing_aside() -> None:
    died = receipts(25, range_=(20, 30))
    [stored] = died.stored[KEY]
    without_transaction = replace(stored.receipt, delivery="at_least_once")
    died = replace(died, stored={KEY: (replace(stored, receipt=without_transaction),)})
    assert rows_of(view(), KEY, died) == {}


def test_a_partition_that_the_ledger_has_lost_keeps_what_the_store_knows() -> None:
    assert histories(rows_of(LedgerView(), KEY, known=[row(7, FIRST, GIVEN_UP)])) == {7: (FIRST, GIVEN_UP)}
