"""Which receipts a ledger need not keep: old ones about which nothing is left to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_replication.ledger.entries import FailedRecord
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.offsets import PartitionKey, TopicPartition
from kafka_replication.planning.plan import may_go
from tests.conformance.ledger_world import gap, position, receipt, verified

KEY = PartitionKey("orders", TopicPartition("orders", 0), "orders")
OTHER = replace(KEY, target_topic="another")
WRITTEN, LATER = receipt(0, 1).time, "2031-01-01T00:00:00.000Z"
FAILED = FailedRecord(offset=3, kind="too_large", reason="", error="", size=1, key_digest="", digest="")


def view(generation: int = 1, **more: Any) -> LedgerView:
    return LedgerView({KEY: position(20, generation)}, {KEY: verified(10, generation)}, **more)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (receipt(0, 5), True),
        (receipt(5, 10), True),
        (receipt(5, 11), False),  # its last offset is not verified
        (receipt(10, 15), False),
        (replace(receipt(0, 5), time=LATER), False),
        (replace(receipt(0, 5), failures=(FAILED,), skipped=1), False),
        (receipt(0, 5, 2), False),  # of a generation that the ledger was not asked about
    ],
)
def test_what_is_old_and_verified_may_go(asked: Any, expected: bool) -> None:
    assert may_go(view(), LATER)(KEY, asked) is expected


def test_what_is_as_old_as_the_limit_stays() -> None:
    assert not may_go(view(), WRITTEN)(KEY, receipt(0, 5))


def test_what_was_given_up_or_reset_may_go() -> None:
    assert may_go(LedgerView({KEY: position(20)}, {}, {KEY: (gap(0, 5),)}), LATER)(KEY, receipt(0, 5))
    assert may_go(view(2), LATER)(KEY, receipt(10, 15)), "it is of an earlier generation"


def test_a_key_without_a_position_keeps_its_receipts() -> None:
    assert not may_go(view(), LATER)(OTHER, receipt(0, 5))
