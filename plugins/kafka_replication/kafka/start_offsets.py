"""Commits the start offsets of new partitions in one transaction, before anything is copied."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Literal

from confluent_kafka.admin import AdminClient

from kafka_replication.config import Copy
from kafka_replication.kafka import clients, offsets
from kafka_replication.kafka.cursor import first_record
from kafka_replication.kafka.transactions import TransactionalProducer, longest_wait
from kafka_replication.ledger.entries import Gap, Position
from kafka_replication.ledger.port import Ledger
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

    def fence(self) -> Mapping[PartitionKey, Position]:
        """Fence every earlier instance. Returns the positions that exist then; only this instance can add more."""
        self._transaction.fence()
        return self._ledger.view().positions

    def occupied(self, keys: Collection[PartitionKey]) -> dict[PartitionKey, int]:
        """The partitions whose target has records for a ``read_committed`` reader, with the offset of the first one.

        Raises Stalled if an open transaction hides records.
        """
        at = [key.target for key in keys]
        ends, starts = offsets.stable_ends(self._admin, at, self._wait), offsets.log_starts(self._admin, at)
        return {
            key: first
            for key in keys
            if (first := self._first(key.target, starts[key.target], ends[key.target])) is not None
        }

    def _first(self, at: TopicPartition, start: int, end: int) -> int | None:
        return (
            first_record(self._target, consumer_group(self._replication), at, OffsetRange(start, end))
            if start < end
            else None
        )

    def commit(
        self,
        positions: Mapping[PartitionKey, Position],
        on_existing: Literal["refuse", "append"],
        gaps: Mapping[PartitionKey, Gap] = {},
    ) -> dict[PartitionKey, Position]:
        """Commit all of these positions and gaps, or none.

        With ``append``, records that a target already has stay, and ours follow them.
        """
        ends = (
            offsets.stable_ends(self._admin, [key.target for key in positions], self._wait)
            if on_existing == "append"
            else {}
        )
        receipts = self._ledger.receipt_ends()  # read after fencing: all receipts of these partitions will lie above
        started = {
            key: replace(
                position.after(OffsetRange(position.start, position.start), None, ends.get(key.target, 0)),
                receipts_from=receipts[key.ledger_partition],
            )
            for key, position in positions.items()
        }
        if started:
            self._transaction.begin()
            for key, position in started.items():
                self._ledger.write(self._transaction, key, position)
            for key, gap in gaps.items():
                self._ledger.write(self._transaction, key, gap)
            self._transaction.commit()
        return started
