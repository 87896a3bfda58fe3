"""The content of a record that was set aside: from the source while it has it, else from the quarantine."""

from __future__ import annotations

import logging
from contextlib import closing

from kafka_replication.kafka import AdminClient
from kafka_replication.kafka.client import clients
from kafka_replication.kafka.metadata import offsets, topics
from kafka_replication.kafka.read.cursor import Cursor
from kafka_replication.ledger.entries import FailedRecord, Ids
from kafka_replication.model.errors import GapFound, Refused
from kafka_replication.model.keys import PartitionKey, consumer_group
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.sinks.port import Record, digest_of
from kafka_replication.targets.port import Quarantine

log = logging.getLogger(__name__)


class FailedContents:
    """Reads failed records of one partition again. What it returns has the digest that the receipt names."""

    def __init__(self, key: PartitionKey, source: clients.ClientConfig, quarantine: Quarantine, stall: float) -> None:
        self._key, self._quarantine = key, quarantine
        self._source = Cursor(source, consumer_group(key.replication), key.source, stall)
        self._readable: OffsetRange | None = None

    def look(self, admin: AdminClient, ids: Ids) -> None:
        """Find out which offsets of the source can still be read; none if its topic was re-created."""
        at = self._key.source
        if topics.topic_ids(admin, [at.topic]).get(at.topic) == ids.source_topic:
            self._readable = offsets.readable_log(admin, at)

    def of(self, failed: FailedRecord) -> Record | None:
        """The record; None if neither side has it unchanged."""
        if self._readable is not None and failed.offset in self._readable:
            record = self._at_source(failed)
            if record is not None and digest_of(record) == failed.digest:
                return record
        return self._quarantine.original(self._key, failed)

    def _at_source(self, failed: FailedRecord) -> Record | None:
        try:
            return next(self._source.content(OffsetRange(failed.offset, failed.offset + 1)), None)
        except (GapFound, Refused, SystemError) as error:  # it is gone, or cannot be read, or not decoded
            log.info("%s offset %d: %s", self._key.source, failed.offset, error)
            return None

    def close(self) -> None:
        self._source.close()


def failed_contents(
    key: PartitionKey, source: clients.ClientConfig, quarantine: Quarantine, stall: float
) -> closing[FailedContents]:
    return closing(FailedContents(key, source, quarantine, stall))
