"""The planner, odd case by odd case: the ranges it gives, and what its plan carries."""

from __future__ import annotations

import pytest

from kafka_replication.ledger.entries import Ids
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.planning.plan import State
from tests.support.planning import GROWN_TARGET, IDS, WORK, Case, key, position, source, topic, verified


@pytest.mark.parametrize(("case", "state", "copy", "verify"), WORK.values(), ids=WORK)
def test_what_there_is_to_do(case: Case, state: State, copy: tuple[int, int] | None, verify: list[list[int]]) -> None:
    made = case.one()
    assert made.state is state
    assert made.copy == (OffsetRange(*copy) if copy else None)
    assert made.verify.encode() == verify
    assert (made.what, bool(made.remedy), made.refused) == ("", bool(made.missed), False)
    assert case.plan().idle == (copy is None and not verify)


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
