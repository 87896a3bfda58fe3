"""Carries out changes of the ledger, and encodes what they write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kafka_replication.ledger import codec
from kafka_replication.ledger.account import Change
from kafka_replication.ledger.codec import (
    deleted_key,
    gap_key,
    handled_key,
    position_key,
    receipt_key,
    removed_key,
    start_key,
    verified_key,
)
from kafka_replication.ledger.entries import (
    POSITIONS,
    RECEIPTS,
    Deleted,
    Entry,
    Gap,
    Handled,
    Position,
    Receipt,
    Removed,
    Start,
    Verified,
)
from kafka_replication.ledger.port import Ledger, TransactionPort
from kafka_replication.model.offsets import PartitionKey

QUEUED: Final = 10_000  # deletions; the producer's queue is bounded


def apply(ledger: Ledger, transaction: TransactionPort, changes: Sequence[Change], *, begun: bool = False) -> bool:
    """Carry out these changes in one transaction of a writer that has fenced every earlier one of its id. False if a
    position is another one than its change expects: then nothing is written.

    ``begun``: the transaction is open already, and has records that belong to the changes.
    """
    if any(one.expects is not None and ledger.position(one.key) != one.expects for one in changes):
        return False
    if not begun:
        transaction.begin()
    add(ledger, transaction, changes)
    transaction.commit()
    return True


def add(ledger: Ledger, transaction: TransactionPort, changes: Iterable[Change]) -> None:
    """Add these changes to the open transaction."""
    for change in changes:
        for entry in change.write:
            ledger.write(transaction, change.key, entry)
        for number, receipt in enumerate(change.delete, 1):
            ledger.delete(transaction, change.key, receipt)
            if number % QUEUED == 0:
                transaction.flush()


def write(transaction: TransactionPort, key: PartitionKey, entry: Entry) -> None:
    """Add the entry to the open transaction, in the key's ledger partition."""
    topic, record_key = _place(key, entry)
    transaction.send(topic, key.ledger_partition, record_key, codec.encode(entry))


def delete(transaction: TransactionPort, key: PartitionKey, receipt: Receipt) -> None:
    """Add a record without a value, which deletes the receipt, to the open transaction."""
    transaction.send(RECEIPTS, key.ledger_partition, receipt_key(key, receipt), None)


def _place(key: PartitionKey, entry: Entry) -> tuple[str, bytes]:
    match entry:
        case Position():
            return POSITIONS, position_key(key)
        case Verified():
            return POSITIONS, verified_key(key)
        case Gap():
            return POSITIONS, gap_key(key, entry)
        case Start():
            return POSITIONS, start_key(key)
        case Deleted():
            return POSITIONS, deleted_key(key)
        case Removed():
            return POSITIONS, removed_key(key)
        case Handled():
            return POSITIONS, handled_key(key, entry)
        case Receipt():
            return RECEIPTS, receipt_key(key, entry)
