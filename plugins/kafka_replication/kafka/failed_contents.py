"""The content of a record that was set aside: from the source while it has it, else from the quarantine topic."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Message
from confluent_kafka.admin import AdminClient

from kafka_replication.kafka import clients, offsets, quarantine, topics
from kafka_replication.kafka.cursor import Cursor
from kafka_replication.kafka.quarantine_scan import QuarantineEnds
from kafka_replication.kafka.scan import headers_of, record_of
from kafka_replication.ledger.entries import FailedRecord, Ids
from kafka_replication.model.errors import GapFound, Refused
from kafka_replication.model.keys import PartitionKey, consumer_group
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.sinks.port import Record

log = logging.getLogger(__name__)


class FailedContents:
    """Reads failed records of one partition again. What it returns has the digest that the receipt names."""

    def __init__(self, key: PartitionKey, source: clients.ClientConfig, target: clients.ClientConfig, stall: float):
        self._key, self._source, self._target, self._stall = key, source, target, stall
        self._cursors = dict[TopicPartition, Cursor]()
        self._readable: OffsetRange | None = None
        self._quarantine = QuarantineEnds(clients.shared_admin(target))

    def look(self, admin: AdminClient, ids: Ids) -> None:
        """Find out which offsets of the source can still be read; none if its topic was re-created."""
        at = self._key.source
        if topics.topic_ids(admin, [at.topic]).get(at.topic) == ids.source_topic:
            start, end = offsets.log_starts(admin, [at])[at], offsets.last_stable(admin, [at])[at]
            self._readable = OffsetRange(min(start, end), end)

    def of(self, failed: FailedRecord) -> Record | None:
        """The record; None if neither side has it unchanged."""
        if self._readable is not None and failed.offset in self._readable:
            record = self._at_source(failed)
            if record is not None and quarantine.digest_of(record) == failed.digest:
                return record
        if failed.place is None or not self._quarantine.has(failed.place):
            return None
        at = TopicPartition(failed.place.topic, failed.place.partition)
        message = self._one(at, self._target, failed.place.offset)
        if message is None or not quarantine.is_copy_of(message, self._key, failed):
            return None
        return quarantine.original(message.key(), message.value(), headers_of(message))

    def _at_source(self, failed: FailedRecord) -> Record | None:
        message = self._one(self._key.source, self._source, failed.offset)
        if message is None:
            return None
        try:
            return record_of(message)
        except SystemError:
            return None

    def _one(self, at: TopicPartition, side: clients.ClientConfig, offset: int) -> Message | None:
        if at not in self._cursors:
            self._cursors[at] = Cursor(side, consumer_group(self._key.replication), at, self._stall)
        try:
            return next(self._cursors[at].read(OffsetRange(offset, offset + 1)), None)
        except (GapFound, Refused) as error:  # it is gone, or cannot be read
            log.info("%s offset %d: %s", at, offset, error)
            return None

    def close(self) -> None:
        for cursor in self._cursors.values():
            cursor.close()


@contextmanager
def failed_contents(
    key: PartitionKey, source: clients.ClientConfig, target: clients.ClientConfig, stall: float
) -> Iterator[FailedContents]:
    contents = FailedContents(key, source, target, stall)
    try:
        yield contents
    finally:
        contents.close()
