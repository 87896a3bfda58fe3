"""Decides which receipts a ledger need not keep any longer. Pure."""

from __future__ import annotations

from collections.abc import Callable

from kafka_replication.ledger.entries import Receipt
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.keys import PartitionKey


def may_go(view: LedgerView, before: str) -> Callable[[PartitionKey, Receipt], bool]:
    """True of a receipt that was written ``before`` this time, and about which nothing is left to do: its range is
    verified or given up, or of an earlier generation, and it set no record aside.
    """

    def decide(key: PartitionKey, receipt: Receipt) -> bool:
        position = view.positions.get(key)
        if position is None or receipt.time >= before or receipt.failures:
            return False
        if receipt.generation != position.generation:
            return receipt.generation < position.generation
        return view[key].verified_or_waived().contains(receipt.range)

    return decide
