"""Receipts as they were read, and where the next read can begin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_replication.ledger.entries import Receipt
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import Coverage


@dataclass(frozen=True, slots=True)
class StoredReceipt:
    """A receipt and its offset in the receipts topic."""

    offset: int
    receipt: Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipts:
    """What one read of the receipts topic returned for the requested keys."""

    stored: Mapping[PartitionKey, tuple[StoredReceipt, ...]]
    since: Mapping[PartitionKey, int]  # the requested offset; 0: from the log start
    log_starts: Mapping[int, int]  # of the ledger partitions that were read
    ends: Mapping[int, int]  # where reading ended; all transactions with receipts below it had ended

    def of(self, key: PartitionKey, generation: int) -> list[Receipt]:
        """The receipts of the key in one generation."""
        return [stored.receipt for stored in self.stored[key] if stored.receipt.generation == generation]

    def all(self, key: PartitionKey) -> list[Receipt]:
        """The receipts of the key in every generation, ordered by generation and source offset."""
        return sorted(
            (stored.receipt for stored in self.stored[key]),
            key=lambda receipt: (receipt.generation, receipt.range.from_),
        )

    def generations(self, key: PartitionKey) -> set[int]:
        return {stored.receipt.generation for stored in self.stored[key]}

    def incomplete(self, key: PartitionKey) -> bool:
        """Whether requested receipts may have expired, because the log starts above the requested offset."""
        return self.log_starts[key.ledger_partition] > self.since[key]

    def unverified_from(self, key: PartitionKey, generation: int, verified: Coverage) -> int:
        """The offset of the first receipt of this generation that is not ``verified``, or where reading ended if all
        are.
        """
        left = (
            stored.offset
            for stored in self.stored[key]
            if stored.receipt.generation == generation and not verified.contains(stored.receipt.range)
        )
        return min(left, default=self.ends[key.ledger_partition])
