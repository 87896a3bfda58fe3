"""Encodes entries and writes them into the transaction that the caller opened."""

from __future__ import annotations

from kafka_replication.ledger import codec
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
from kafka_replication.ledger.record_keys import (
    deleted_key,
    gap_key,
    handled_key,
    position_key,
    receipt_key,
    removed_key,
    start_key,
    verified_key,
)
from kafka_replication.ledger.transaction import TransactionPort
from kafka_replication.model.keys import PartitionKey


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
