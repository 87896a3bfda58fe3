"""From where a run needs receipts: as little as is safe."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_replication.ledger.entries import Ids, Position, Verified
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.planning import plan_codec
from kafka_replication.planning.plan import PartitionPlan, Plan, State, receipts_from

KEY = PartitionKey("orders-dr", TopicPartition("orders", 0), "orders")
IDS = Ids("SRC", "s", "t")
PLACE = KEY.ledger_partition
ENDS = dict.fromkeys(range(16), 900)


def view(covered: int, verified: int | None, opened_at: int | None = 100, verified_at: int | None = 500) -> LedgerView:
    position = Position(
        generation=1,
        ids=IDS,
        start=0,
        next_offset=covered,
        coverage=Coverage.of([OffsetRange(0, covered)]),
        receipts_from=opened_at,
    )
    entry = Verified(
        generation=1,
        coverage=Coverage.of([OffsetRange(0, verified or 0)]),
        level="digest",
        run_id="run",
        time="time",
        receipts_from=verified_at,
    )
    return LedgerView({KEY: position}, {} if verified is None else {KEY: entry})


def planned(copy: tuple[int, int] | None = None, verify: tuple[int, int] | None = None) -> PartitionPlan:
    made = PartitionPlan(
        key=KEY, state=State.BEHIND, ids=IDS, generation=1, start=0, position=50, source_end=100, watermark=None
    )
    pending = Coverage.of([OffsetRange(*verify)]) if verify else Coverage()
    return replace(made, copy=OffsetRange(*copy) if copy else None, verify=pending)


CASES = {
    "all is verified: what this run writes": (planned(copy=(50, 60)), view(50, 50), 900),
    "nothing was copied yet": (planned(copy=(0, 60)), view(0, None), 900),
    "some is pending: where the last verification ended": (planned(copy=(50, 60)), view(50, 40), 500),
    "all is pending: where it was opened": (planned(verify=(0, 50)), view(50, None), 100),
    "pending, written by an earlier version": (planned(verify=(0, 50)), view(50, None, None), 0),
    "pending, verified by an earlier version": (planned(verify=(40, 50)), view(50, 40, None, None), 0),
    "a backfill over what is verified": (planned(copy=(10, 60)), view(50, 50), 0),
    "another generation": (replace(planned(copy=(0, 60)), generation=2), view(50, 40), 900),
}


@pytest.mark.parametrize(("partition", "ledger", "offset"), CASES.values(), ids=CASES)
def test_one_partition(partition: PartitionPlan, ledger: LedgerView, offset: int) -> None:
    assert receipts_from(Plan("orders-dr", (partition,)), ledger, ENDS) == {PLACE: offset}


def test_the_smallest_counts_and_what_is_not_accounted_for_does_not() -> None:
    other = PartitionKey(
        "orders-dr",
        next(
            at
            for n in range(1, 999)
            if PartitionKey("orders-dr", (at := TopicPartition("orders", n)), "orders").ledger_partition == PLACE
        ),
        "orders",
    )
    ledger = view(50, 40)
    both = LedgerView(
        {**ledger.positions, other: view(50, 50).positions[KEY]}, {**ledger.verified, other: view(50, 50).verified[KEY]}
    )
    plan = Plan("orders-dr", (planned(copy=(50, 60)), replace(planned(copy=(50, 60)), key=other)))
    assert receipts_from(plan, both, ENDS) == {PLACE: 500}
    assert receipts_from(Plan("orders-dr", (planned(),)), ledger, ENDS) == {}


def test_the_better_of_both_bounds_is_taken() -> None:
    assert view(50, 40)[KEY].receipts_from(900) == 900
    assert view(50, 40)[KEY].receipts_from(0) == 500
    assert view(50, 40)[KEY].receipts_from() == 500
    assert view(50, None)[KEY].receipts_from() == 100
    assert view(50, None, None)[KEY].receipts_from() is None


def test_a_plan_keeps_them() -> None:
    made = Plan("orders-dr", (planned(copy=(50, 60)),), receipts_from={3: 500, 11: 7})
    assert plan_codec.decode(plan_codec.encode(made), "run") == made
