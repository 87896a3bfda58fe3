"""Receipts as they were read, and where the next reading can begin."""

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
    """What one reading of the receipts topic returned, for the keys that were asked for."""

    stored: Mapping[PartitionKey, tuple[StoredReceipt, ...]]
    since: Mapping[PartitionKey, int]  # what was asked for; 0: everything there is
    log_starts: Mapping[int, int]  # of each ledger partition that was read
    ends: Mapping[int, int]  # where reading ended: every receipt below it was committed or aborted by then

    def of(self, key: PartitionKey, generation: int) -> list[Receipt]:
        """The key's receipts of one generation."""
        return [stored.receipt for stored in self.stored[key] if stored.receipt.generation == generation]

    def all(self, key: PartitionKey) -> list[Receipt]:
        """The key's receipts, of every generation, in order."""
        return sorted(
            (stored.receipt for stored in self.stored[key]),
            key=lambda receipt: (receipt.generation, receipt.range.from_),
        )

    def generations(self, key: PartitionKey) -> set[int]:
        return {stored.receipt.generation for stored in self.stored[key]}

    def incomplete(self, key: PartitionKey) -> bool:
        """Whether receipts that were asked for may have expired: the log starts above where reading was to begin."""
        return self.log_starts[key.ledger_partition] > self.since[key]

    def unverified_from(self, key: PartitionKey, generation: int, verified: Coverage) -> int:
        """The offset below which every receipt of this generation is ``verified``: the first one that is not, or else
        where reading ended.
        """
        left = (
            stored.offset
            for stored in self.stored[key]
            if stored.receipt.generation == generation and not verified.contains(stored.receipt.range)
        )
        return min(left, default=self.ends[key.ledger_partition])
