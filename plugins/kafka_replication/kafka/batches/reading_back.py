"""Reads copied batches back, as brokers store them."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_replication.kafka import clients
from kafka_replication.kafka.batches.scan import BatchScan
from kafka_replication.kafka.throttling import Throttling
from kafka_replication.model.errors import Refused
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.verification.digest import BatchDigest
from kafka_replication.wire.batch import Malformed


class BatchCursor:
    """Goes over one target partition, with a connection of its own."""

    def __init__(self, config: clients.ClientConfig, at: TopicPartition, stall: float, limit: int | None) -> None:
        self._at, self._scan = at, BatchScan(config, at, stall, Throttling(str(at), "target"), limit)

    def read(self, wanted: Iterable[OffsetRange], digest: BatchDigest) -> int:
        """Add the committed batches at these offsets, which ascend, to ``digest``; not one that is there in part.
        Returns how many records they have.

        Raises GapFound, Stalled, Unreachable, Refused, BadInput.
        """
        before = digest.count
        try:
            for range_ in wanted:
                for batch in self._scan.visible(range_):
                    if range_.from_ <= batch.base_offset and batch.until <= range_.until:
                        digest.add_batch(batch)
        except Malformed as e:
            raise Refused(f"{self._at}: {e}", "repair the broker's log or its replica") from e
        return digest.count - before

    def close(self) -> None:
        self._scan.close()
