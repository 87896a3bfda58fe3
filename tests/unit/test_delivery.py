"""Delivery profiles in configuration, ledger and reports."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import ValidationError

from kafka_replication.config import Replication
from kafka_replication.ledger.entries import Ids, Position, Receipt, Verified
from kafka_replication.ledger.placement import KafkaSegments, Segment
from kafka_replication.ledger.receipts import Receipts, StoredReceipt, committed
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.choices import PROFILES, Delivery, weakest_delivery
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.planning import rights
from kafka_replication.planning.snapshot import Snapshot
from kafka_replication.reporting.arithmetic import Copied
from tests.support.reports import copied_in

KEY = PartitionKey("orders-dr", TopicPartition("orders", 3), "dr.orders")
IDS = Ids("SRC", "s", "t")


def file(**more: object) -> Replication:
    least = {"name": "clicks", "source": {"connection": "a"}, "target": {"connection": "b"}}
    return Replication.model_validate({**least, "topics": {"include": ["clicks"]}, **more})


def receipt(from_: int, until: int, delivery: Delivery = "at_least_once", first: int = 0) -> Receipt:
    count = until - from_
    segment = Segment(partition=3, first=first, last=first + count - 1, count=count, digest="d")
    return Receipt(
        generation=1,
        range=OffsetRange(from_, until),
        count=count,
        bytes=10 * count,
        digest="d",
        digest_kind="kind",
        engine="engine",
        placement=KafkaSegments((segment,)),
        ids=IDS,
        run_id="run-1",
        time="time",
        delivery=delivery,
    )


def read(*receipts: Receipt) -> Receipts:
    """These receipts, in the order in which they were written."""
    stored = tuple(StoredReceipt(offset, one) for offset, one in enumerate(receipts))
    at = KEY.ledger_partition
    return Receipts(stored={KEY: stored}, since={KEY: 0}, log_starts={at: 0}, ends={at: len(stored)})


def test_the_default_promises_everything() -> None:
    assert (file().delivery, file().accept_loss) == ("exactly_once", 0)
    assert PROFILES[0] == weakest_delivery([]) == "exactly_once"
    assert weakest_delivery(["at_least_once", "fire_and_forget", "exactly_once"]) == "fire_and_forget"


@pytest.mark.parametrize("delivery", PROFILES)
def test_only_profiles_that_lose_records_have_a_share_to_accept(delivery: Delivery) -> None:
    if delivery in ("leader_ack", "fire_and_forget"):
        assert file(delivery=delivery, accept_loss=0.01).accept_loss == 0.01
        return
    with pytest.raises(ValidationError, match=f"{delivery} loses nothing"):
        file(delivery=delivery, accept_loss=0.01)


@pytest.mark.parametrize("share", [-0.1, 1.1, "some"])
def test_a_share_lies_between_nothing_and_all(share: object) -> None:
    with pytest.raises(ValidationError):
        file(delivery="leader_ack", accept_loss=share)


def test_a_later_receipt_takes_the_place_of_what_a_dead_attempt_left() -> None:
    """A backfill of [50, 60) died before its position; live copying came there in other chunks."""
    left_over, one, other = receipt(50, 60), receipt(40, 55), receipt(55, 70)
    assert read(left_over, one, other).of(KEY, 1) == [one, other]
    assert read(left_over, receipt(40, 50), other).of(KEY, 1)[0].range == OffsetRange(40, 50)
    in_transactions = [replace(each, delivery="exactly_once") for each in (left_over, one)]
    assert len(read(*in_transactions).of(KEY, 1)) == 2, "that is a contradiction, which is told"


def test_a_receipt_counts_once_its_position_was_written() -> None:
    left_over, copied = receipt(10, 20), receipt(0, 10)
    assert committed([copied, left_over], Coverage.of([OffsetRange(0, 10)])) == [copied]
    in_transaction = replace(left_over, delivery="exactly_once")
    assert committed([copied, in_transaction], Coverage.of([OffsetRange(0, 10)])) == [copied, in_transaction]


@pytest.mark.parametrize(("delivery", "contradicts"), [("at_least_once", False), ("exactly_once", True)])
def test_a_receipt_beyond_the_position_contradicts_it_only_in_transactions(
    delivery: Delivery, contradicts: bool
) -> None:
    position = Position(
        generation=1, ids=IDS, start=0, next_offset=10, coverage=Coverage.of([OffsetRange(0, 10)]), target_end=10
    )
    receipts = read(receipt(0, 10, delivery), receipt(10, 20, delivery, first=10))
    assert bool(LedgerView({KEY: position})[KEY].contradictions_in(receipts)) is contradicts


def test_what_is_lost_is_a_term_of_the_span_and_what_is_doubled_is_not() -> None:
    damaged = replace(receipt(0, 10), count=8, lost_in_delivery=3, duplicates=4, filtered=1)
    whole = copied_in(OffsetRange(0, 20), [damaged, receipt(10, 20)])
    assert whole == Copied(
        records=15, written=15, span=20, bytes=62 + 100, filtered=1, lost_in_delivery=3, duplicates=4
    )
    assert whole.not_visible == 1


def test_no_more_is_lost_than_the_shared_offsets_hold() -> None:
    part = copied_in(OffsetRange(0, 2), [replace(receipt(0, 10), lost_in_delivery=3)])
    assert (part.records, part.lost_in_delivery, part.not_visible) == (0, 2, 0)


@pytest.mark.parametrize("delivery", PROFILES)
def test_transactional_ids_need_a_right_only_where_there_are_transactions(delivery: Delivery) -> None:
    replication = file(delivery=delivery)
    denied = frozenset({rights.on_transactions("clicks")})
    snapshot = Snapshot(source_cluster="SRC", target_cluster="TGT", source={}, target={}, ledger={}, denied=denied)
    found = [one for one in rights.missing_for_all(replication, snapshot) if "transactional id" in one.what]
    assert bool(found) is (delivery == "exactly_once")


def test_the_weakest_profile_of_what_is_verified_is_kept() -> None:
    entry = Verified(
        generation=1,
        coverage=Coverage.of([OffsetRange(0, 10)]),
        level="digest",
        run_id="run-1",
        time="time",
        delivery="leader_ack",
        lost_in_delivery=2,
        judged_until=8,
    )
    position = Position(generation=1, ids=IDS, start=0, next_offset=10)
    view = LedgerView({KEY: position}, {KEY: entry})
    more = view.of(KEY, 1).verified_with(
        Coverage.of([OffsetRange(10, 20)]), level="digest", run_id="run-2", time="later"
    )
    assert (
        more.delivery,
        more.lost_in_delivery,
        view.of(KEY, 1).verified.judged_until,
        view.of(KEY, 2).verified.judged_until,
    ) == (
        "leader_ack",
        2,
        8,
        None,
    )
