"""Commits the start offsets of new partitions in one transaction, before anything is copied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from kafka_replication.ledger.account import Change
from kafka_replication.ledger.entries import Entry, Position
from kafka_replication.ledger.placement import Spread
from kafka_replication.ledger.view import LedgerView
from kafka_replication.ledger.writing import apply
from kafka_replication.model.choices import EXACTLY_ONCE, SOLE, Delivery, PartitionedBy, Partitioning
from kafka_replication.model.offsets import PartitionKey, opening_id
from kafka_replication.targets.occupied import Ends, TargetRecords
from kafka_replication.targets.port import Target


class StartOffsets:
    """Commits the start offsets of one replication's new partitions. A later instance fences an earlier one."""

    def __init__(
        self, replication: str, target: Target, placing: Partitioning = SOLE, delivery: Delivery = EXACTLY_ONCE
    ) -> None:
        self._ledger, self._placing = target.ledger, placing
        self._delivery: Delivery = delivery
        self.records = TargetRecords(target, placing)
        what = f"committing start offsets of {replication}"
        self._transaction = target.writer(opening_id(replication), what)

    def close(self) -> None:
        self._transaction.close()

    def fence(self) -> LedgerView:
        """Fence every earlier instance. Returns the entries that exist then; only this instance can add positions."""
        self._transaction.fence()
        return self._ledger.view()

    def commit(
        self,
        positions: Mapping[PartitionKey, Position],
        ends: Mapping[PartitionKey, Ends],
        more: Iterable[tuple[PartitionKey, Entry]] = (),
    ) -> dict[PartitionKey, Position]:
        """Commit all of these positions and ``more`` entries, or none; without transactions, some.

        Below ``ends`` a target may have records of others: ours follow them. Other targets must be empty.
        """
        more = tuple(more)
        receipts = self._ledger.receipt_ends()  # read after fencing: all receipts of these partitions will lie above
        started = {
            key: replace(
                beginning(position, key, self._placing, ends.get(key, {})),
                receipts_from=receipts[key.ledger_partition],
                delivery=self._delivery,
            )
            for key, position in positions.items()
        }
        if started or more:
            changes = [Change(key=key, write=(entry,)) for key, entry in (*started.items(), *more)]
            apply(self._ledger, self._transaction, changes)
        return started


def beginning(position: Position, key: PartitionKey, partitioning: Partitioning, ends: Ends) -> Position:
    """The position of a partition of which nothing was copied yet. Others wrote to its target partitions up to
    ``ends``, as far as that is known.
    """
    if partitioning.keeps:
        return replace(position, target_end=ends.get(key.source.partition, 0), spread=None)
    if not ends:
        return replace(position, target_end=0, spread=None)
    by = PartitionedBy(name=partitioning.name, hash="", partitions=max(ends) + 1)
    return replace(position, target_end=0, spread=Spread.nothing(by).with_(by, ends))
