"""Whether target partitions have records already: those of others, before ours. Only reads."""

from __future__ import annotations

from collections.abc import Collection

from confluent_kafka.admin import AdminClient

from kafka_replication.kafka import clients, offsets
from kafka_replication.kafka.cursor import first_record
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.keys import PartitionKey, consumer_group
from kafka_replication.model.offsets import OffsetRange, TopicPartition


class TargetRecords:
    """Looks for records in target partitions of one replication."""

    def __init__(self, replication: str, target: clients.ClientConfig, admin: AdminClient) -> None:
        self._replication, self._target, self._admin = replication, target, admin

    def occupied(self, keys: Collection[PartitionKey], wait: float) -> dict[PartitionKey, int]:
        """The partitions whose target has records for a ``read_committed`` reader, with the offset of the first one.

        Raises Stalled if an open transaction hides records, and Unreachable.
        """
        occupied, unknown = self.occupied_each(keys, wait)
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
