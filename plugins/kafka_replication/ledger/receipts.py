"""Receipts as they were read, and where the next read can begin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kafka_replication.ledger.entries import Receipt
from kafka_replication.model.choices import EXACTLY_ONCE
from kafka_replication.model.offsets import Coverage, PartitionKey


@dataclass(frozen=True, slots=True)
class StoredReceipt:
    """A receipt and its offset in the receipts topic."""

    offset: int
    receipt: Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipts:
    """The receipts of the requested keys that one reading of their topic returned."""

    stored: Mapping[PartitionKey, tuple[StoredReceipt, ...]]
    since: Mapping[PartitionKey, int]  # the requested offset; 0: from the log start
    log_starts: Mapping[int, int]  # of the ledger partitions that were read
    ends: Mapping[int, int]  # where reading ended; all transactions with receipts below it had ended

    def of(self, key: PartitionKey, generation: int) -> list[Receipt]:
        """The receipts of the key in one generation, without those that a later one replaced.

        An attempt without transactions that died may leave a receipt whose position was never written. Its offsets are
        copied again, in other chunks.
        """
        own = [stored for stored in self.stored[key] if stored.receipt.generation == generation]
        if all(stored.receipt.delivery == EXACTLY_ONCE for stored in own):
            return [stored.receipt for stored in own]
        replaced, later = set[int](), Coverage()
        for stored in sorted(own, key=lambda stored: -stored.offset):
            range_ = stored.receipt.range
            if stored.receipt.delivery != EXACTLY_ONCE and later.within(range_):
                replaced.add(stored.offset)
            else:
                later = later.add(range_)
        return [stored.receipt for stored in own if stored.offset not in replaced]

    def all(self, key: PartitionKey) -> list[Receipt]:
        """The receipts of the key in every generation, ordered by generation and source offset."""
        return sorted(
            (stored.receipt for stored in self.stored[key]),
            key=lambda receipt: (receipt.generation, receipt.range.from_),
        )

    def generations(self, key: PartitionKey) -> set[int]:
        return {stored.receipt.generation for stored in self.stored[key]}

    def incomplete(self, key: PartitionKey) -> bool:
        """True if requested receipts may have expired, because the log starts above the requested offset."""
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


def window_start(receipts: Iterable[Receipt]) -> int | None:
    """The first target offset that has to be explained for these receipts; None if all are proven by transaction."""
    return min((receipt.after for receipt in receipts if receipt.after is not None), default=None)


def committed(receipts: Iterable[Receipt], coverage: Coverage) -> list[Receipt]:
    """The receipts whose position was written. ``coverage`` is the position's. A transaction writes both or none."""
    return [receipt for receipt in receipts if receipt.delivery == EXACTLY_ONCE or coverage.contains(receipt.range)]


def offsets_to_read(wanted: Mapping[PartitionKey, int | None], ends: Mapping[int, int]) -> dict[PartitionKey, int]:
    """The offset to read each key from; 0 if it is unknown, or above the end of its partition: then the receipts were
    created again.
    """
    return {
        key: 0 if offset is None or offset > ends[key.ledger_partition] else offset for key, offset in wanted.items()
    }
