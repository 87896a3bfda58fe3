"""Commits the start offsets of new partitions in one transaction, before anything is copied."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from confluent_kafka.admin import AdminClient

from kafka_replication.config import Copy
from kafka_replication.kafka import clients, offsets
from kafka_replication.kafka.cursor import first_record
from kafka_replication.kafka.transactions import TransactionalProducer, longest_wait
from kafka_replication.ledger.entries import Entry, Position
from kafka_replication.ledger.port import Ledger
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.keys import PartitionKey, consumer_group, opening_id
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.runtime.deadline import NEVER, Deadline


class StartOffsets:
    """Commits the start offsets of one replication's new partitions. A later instance fences an earlier one."""

    def __init__(
        self,
        replication: str,
        ledger: Ledger,
        target: clients.ClientConfig,
        admin: AdminClient,
        settings: Copy,
        deadline: Deadline = NEVER,
    ) -> None:
        self._replication, self._ledger, self._target, self._admin = replication, ledger, target, admin
        self._settings, self._deadline = settings, deadline
        self._transaction = TransactionalProducer(
            opening_id(replication), f"committing start offsets of {replication}", target, settings, deadline
        )

    @property
    def _wait(self) -> float:
        return longest_wait(self._settings, self._deadline)

    def close(self) -> None:
        self._transaction.close()

    def fence(self) -> LedgerView:
        """Fence every earlier instance. Returns the entries that exist then; only this instance can add positions."""
        self._transaction.fence()
        return self._ledger.view()

    def occupied(self, keys: Collection[PartitionKey]) -> dict[PartitionKey, int]:
        """The partitions whose target has records for a ``read_committed`` reader, with the offset of the first one.

        Raises Stalled if an open transaction hides records, and Unreachable.
        """
        occupied, unknown = self.occupied_each(keys, self._wait)
        for error in unknown.values():
            raise error
        return occupied

    def occupied_each(
        self, keys: Collection[PartitionKey], wait: float
    ) -> tuple[dict[PartitionKey, int], dict[PartitionKey, ReplicationError]]:
        """As `occupied`, with the reason for each partition whose target cannot be read within ``wait`` seconds."""
        ends, failures = self.ends(keys, wait)
        starts, failed = offsets.log_starts_each(self._admin, [key.target for key in ends])
        unknown = failures | {key: failed[key.target] for key in ends if key.target in failed}
        occupied = {}
        for key in ends.keys() - unknown.keys():
            try:
                first = self._first(key.target, starts[key.target], ends[key])
            except ReplicationError as error:
                unknown[key] = error
                continue
            if first is not None:
                occupied[key] = first
        return occupied, unknown

    def ends(
        self, keys: Collection[PartitionKey], wait: float
    ) -> tuple[dict[PartitionKey, int], dict[PartitionKey, ReplicationError]]:
        """The end of each target partition, after waiting ``wait`` seconds at most until no open transaction hides
        records below it; or why it is not known.
        """
        ends, failures = offsets.stable_ends_each(self._admin, [key.target for key in keys], wait)
        return (
            {key: ends[key.target] for key in keys if key.target in ends},
            {key: failures[key.target] for key in keys if key.target in failures},
        )

    def _first(self, at: TopicPartition, start: int, end: int) -> int | None:
        return (
            first_record(self._target, consumer_group(self._replication), at, OffsetRange(start, end))
            if start < end
            else None
        )

    def commit(
        self,
        positions: Mapping[PartitionKey, Position],
        ends: Mapping[PartitionKey, int],
        more: Iterable[tuple[PartitionKey, Entry]] = (),
    ) -> dict[PartitionKey, Position]:
        """Commit all of these positions and ``more`` entries, or none.

        Below ``ends`` a target may have records of others: ours follow them. Other targets must be empty.
        """
        more = tuple(more)
        receipts = self._ledger.receipt_ends()  # read after fencing: all receipts of these partitions will lie above
        started = {
            key: replace(
                position.after(OffsetRange(position.start, position.start), None, ends.get(key, 0)),
                receipts_from=receipts[key.ledger_partition],
            )
            for key, position in positions.items()
        }
        if started or more:
            self._transaction.begin()
            for key, entry in (*started.items(), *more):
                self._ledger.write(self._transaction, key, entry)
            self._transaction.commit()
        return started
