"""The content of a record that was set aside: from the source while it has it, else from the quarantine."""

from __future__ import annotations

import logging
from contextlib import closing

from kafka_replication.kafka import AdminClient
from kafka_replication.kafka.client import clients
from kafka_replication.kafka.metadata import offsets, topics
from kafka_replication.kafka.read.cursor import Cursor
from kafka_replication.kafka.read.scan import offset_of
from kafka_replication.ledger.entries import FailedRecord, Ids
from kafka_replication.model.errors import GapFound, Refused
from kafka_replication.model.failures import FailureKind
from kafka_replication.model.keys import PartitionKey, consumer_group
from kafka_replication.model.offsets import Coverage, OffsetRange
from kafka_replication.sinks.port import Record, digest_of
from kafka_replication.targets.port import Quarantine

log = logging.getLogger(__name__)


class FailedContents:
    """Reads failed records of one partition again. What it returns has the digest that the receipt names."""

    def __init__(self, key: PartitionKey, source: clients.ClientConfig, quarantine: Quarantine, stall: float) -> None:
        self._key, self._quarantine = key, quarantine
        self._source = Cursor(source, consumer_group(key.replication), key.source, stall)
        self._readable: OffsetRange | None = None
        self._unreadable = Coverage()  # offsets that could not be read when they were to be copied
        self._visible = dict[OffsetRange, frozenset[int] | None]()  # in each range of these; None: it still cannot be

    def look(self, admin: AdminClient, ids: Ids, unreadable: Coverage) -> None:
        """Find out which offsets of the source can still be read; none if its topic was re-created.

        ``unreadable`` are all offsets that could not be read when they were to be copied.
        """
        at, self._unreadable = self._key.source, unreadable
        if topics.topic_ids(admin, [at.topic]).get(at.topic) == ids.source_topic:
            self._readable = offsets.readable_log(admin, at)

    def of(self, failed: FailedRecord) -> Record | None:
        """The record; None if neither side has it unchanged. What could not be read has no digest to compare with."""
        unread = failed.kind == FailureKind.UNREADABLE
        if self._readable is not None and failed.offset in self._readable and not (unread and self._lacks(failed)):
            record = self._at_source(failed)
            if record is not None and (unread or digest_of(record) == failed.digest):
                return record
        return self._quarantine.original(self._key, failed)

    def is_not_visible(self, failed: FailedRecord) -> bool:
        """True if an offset that could not be read has no visible record, now that it can be read.

        Reading the offset alone does not show that: where the header of a batch is damaged, a broker may pass over the
        batch. So all that could not be read around it has to be read from its beginning to its end.
        """
        around = self._around(failed)
        if around is None or self._readable is None or around.intersection(self._readable) != around:
            return False
        visible = self._visible_in(around)
        return visible is not None and failed.offset not in visible

    def _lacks(self, failed: FailedRecord) -> bool:
        """True if the record need not be looked for: there is none, or what is around it still cannot be read."""
        around = self._around(failed)
        return around is not None and failed.offset not in (self._visible_in(around) or ())

    def _around(self, failed: FailedRecord) -> OffsetRange | None:
        return next((range_ for range_ in self._unreadable if failed.offset in range_), None)

    def _visible_in(self, wanted: OffsetRange) -> frozenset[int] | None:
        """The offsets of the visible records that the source still has there; None if they cannot all be read."""
        if wanted not in self._visible:
            there = wanted.intersection(self._readable) if self._readable else None
            self._visible[wanted] = self._read_whole(there) if there else None
        return self._visible[wanted]

    def _read_whole(self, wanted: OffsetRange) -> frozenset[int] | None:
        try:
            return frozenset(offset_of(message) for message in self._source.read(wanted))
        except (GapFound, Refused) as error:
            log.info("%s %s: %s", self._key.source, wanted, error)
            return None

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
