"""The record keys of ledger entries: ``[kind, replication, source topic, source partition, target topic, ...]``."""

from __future__ import annotations

import json
from typing import Any

from kafka_replication.ledger.entries import Gap, Handled, Receipt
from kafka_replication.model.errors import LedgerUnreadable
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import TopicPartition

FOREIGN = "only this product may write the ledger topics: find the other writer, then restore or delete the entry"

_TYPES = [str, str, str, int, str]


def position_key(key: PartitionKey) -> bytes:
    return key.entry("position")


def verified_key(key: PartitionKey) -> bytes:
    return key.entry("verified")


def receipt_key(key: PartitionKey, receipt: Receipt) -> bytes:
    return key.entry("receipt", receipt.generation, receipt.range.from_)


def gap_key(key: PartitionKey, gap: Gap) -> bytes:
    return key.entry("gap", gap.generation, gap.range.from_)


def handled_key(key: PartitionKey, handled: Handled) -> bytes:
    numbered = (handled.number,) if handled.number else ()  # the first one has the key that it always had
    return key.entry("handled", handled.generation, handled.offsets.ranges[0].from_, *numbered)


def start_key(key: PartitionKey) -> bytes:
    return key.entry("start")


def deleted_key(key: PartitionKey) -> bytes:
    return key.entry("deleted")


def removed_key(key: PartitionKey) -> bytes:
    return key.entry("removed")


def decode_key(data: bytes | None) -> tuple[str, PartitionKey, tuple[int, ...]]:
    """(kind, key, further numbers). Raises LedgerUnreadable for a key that this product did not write."""
    kind, replication, topic, partition, target, *more = parts_of(data)
    try:
        return kind, PartitionKey(replication, TopicPartition(topic, partition), target), tuple(more)
    except ValueError as e:  # no partition that there can be
        raise _not_ours(data) from e


def parts_of(data: bytes | None) -> list[Any]:
    """The parts of a key: kind, replication, source topic, source partition, target topic, and further numbers. Raises
    LedgerUnreadable for a key that this product did not write.
    """
    try:
        parts: list[Any] = json.loads((data or b"").decode())  # of bytes it would find out the encoding first
        types = [*map(type, parts)]
    except (ValueError, TypeError) as e:
        raise _not_ours(data) from e
    if types[:5] != _TYPES or (len(types) > len(_TYPES) and set(types[5:]) != {int}):
        raise _not_ours(data)
    return parts


def _not_ours(data: bytes | None) -> LedgerUnreadable:
    return LedgerUnreadable(f"a ledger entry has the key {data!r}, which is not ours", FOREIGN)
