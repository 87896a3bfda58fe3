"""The quarantine topic of a target cluster, for one partition."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, closing

from confluent_kafka.admin import AdminClient

from kafka_replication.kafka.client import clients
from kafka_replication.kafka.quarantine import quarantine_record
from kafka_replication.kafka.quarantine.quarantine_scan import QuarantineEnds, quarantined_records
from kafka_replication.kafka.read.cursor import Cursor
from kafka_replication.kafka.read.scan import headers_of
from kafka_replication.ledger.entries import FailedRecord
from kafka_replication.model.errors import GapFound, Refused
from kafka_replication.model.keys import PartitionKey, consumer_group
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.sinks.port import Record

log = logging.getLogger(__name__)


class KafkaQuarantine:
    """A `Quarantine`. It reads each partition of the topic with one consumer."""

    def __init__(self, config: clients.ClientConfig, admin: AdminClient, stall: float, replication: str) -> None:
        self._config, self._admin, self._stall, self._group = config, admin, stall, consumer_group(replication)
        self._ends = QuarantineEnds(admin)
        self._cursors, self._open = dict[TopicPartition, Cursor](), ExitStack()

    def records(self, topic: str, key: PartitionKey, generation: int) -> Iterator[tuple[FailedRecord, str]]:
        return quarantined_records(self._config, self._admin, topic, key, generation, self._stall)

    def original(self, key: PartitionKey, failed: FailedRecord) -> Record | None:
        if failed.place is None or not self._ends.has(failed.place):
            return None
        at, offset = TopicPartition(failed.place.topic, failed.place.partition), failed.place.offset
        try:
            message = next(self._cursor(at).read(OffsetRange(offset, offset + 1)), None)
        except (GapFound, Refused) as error:  # it is gone, or cannot be read
            log.info("%s offset %d: %s", at, offset, error)
            return None
        if message is None or not quarantine_record.is_copy_of(message, key, failed):
            return None
        return quarantine_record.original(message.key(), message.value(), headers_of(message))

    def _cursor(self, at: TopicPartition) -> Cursor:
        if at not in self._cursors:
            cursor = Cursor(self._config, self._group, at, self._stall)
            self._cursors[at] = self._open.enter_context(closing(cursor))
        return self._cursors[at]

    def close(self) -> None:
        self._open.close()
