"""Reads copied batches back, as brokers store them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from kafka_replication.kafka.batches.scan import BatchScan
from kafka_replication.kafka.client import clients
from kafka_replication.kafka.client.throttling import Throttling
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.verification.digest import BatchDigest
from kafka_replication.wire.batch import Malformed

log = logging.getLogger(__name__)


class BatchCursor:
    """Reads one target partition from its first to its last wanted offset, with its own connection."""

    def __init__(self, config: clients.ClientConfig, at: TopicPartition, stall: float, limit: int | None) -> None:
        self._at = at
        self._open: Callable[[], BatchScan] = lambda: BatchScan(config, at, stall, Throttling(str(at), "target"), limit)
        self._scan = self._open()

    def read(self, wanted: Iterable[OffsetRange], digest: BatchDigest) -> int:
        """Add the committed batches at these ascending offsets to ``digest``, and return the number of their records. A
        batch that exists only in part is not added. Reading ends at a batch of another format.

        Raises GapFound, Stalled, Unreachable, BadInput.
        """
        before = digest.count
        try:
            for range_ in wanted:
                for batch in self._scan.visible(range_):
                    if range_.from_ <= batch.base_offset and batch.until <= range_.until:
                        digest.add_batch(batch)
        except Malformed as e:  # its records may still be equal; a client reports unreadable ones better
            log.warning("%s: %s", self._at, e)
            self._scan.close()
            self._scan = self._open()
        return digest.count - before

    def close(self) -> None:
        self._scan.close()
