"""Reads one partition on source and target, to find out what became of the records that were sent."""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import ExitStack, closing
from functools import cached_property

from kafka_replication.kafka.client import clients
from kafka_replication.kafka.metadata import offsets
from kafka_replication.kafka.read.cursor import Cursor
from kafka_replication.ledger.entries import Receipt
from kafka_replication.model.keys import PartitionKey, consumer_group
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.targets.port import RecordReader, Standing
from kafka_replication.verification.digest import Fingerprint
from kafka_replication.verification.matching import Seen, Sent
from kafka_replication.verification.newest import Change, NewestRecords
from kafka_replication.verification.verify import PartDigest


class PartitionSides:
    """A `Sides`: Kafka as the source, and what stands on a target of any kind. Each side is opened when it is first
    needed.
    """

    def __init__(self, source: clients.ClientConfig, standing: Standing, key: PartitionKey, stall: float) -> None:
        """``stall`` is in seconds."""
        self._source, self._standing, self._key, self._stall = source, standing, key, stall
        self._open = ExitStack()

    @cached_property
    def _reader(self) -> Cursor:
        group = consumer_group(self._key.replication)
        return self._open.enter_context(closing(Cursor(self._source, group, self._key.source, self._stall)))

    def source_log(self) -> OffsetRange:
        return offsets.readable_log(clients.shared_admin(self._source), self._key.source)

    def source(self, wanted: OffsetRange, without: Container[int] = ()) -> Iterator[Sent]:
        return self._reader.sent(wanted, without=without)

    def source_digest(self, wanted: OffsetRange, digest: Fingerprint) -> PartDigest:
        self._reader.add_to(digest, wanted)
        return PartDigest(digest.count, digest.hexdigest())

    def written(self, receipt: Receipt, change: Change) -> NewestRecords:
        return NewestRecords.of(made for record in self._reader.copied(receipt) for made in change(record))

    def around(self, wanted: OffsetRange) -> Iterator[Sent]:
        return self._reader.sent(wanted, lenient=True)

    @cached_property
    def _target_reader(self) -> RecordReader:
        return self._open.enter_context(self._standing.reader(self._key.target))

    def target_log(self, expected: int) -> OffsetRange:
        return self._standing.at_rest(self._key.target, expected)

    def check_all_shown(self, until: int) -> None:
        self._standing.check_all_shown(self._key.target, until)

    def target(self, wanted: OffsetRange) -> Iterator[Seen]:
        return self._target_reader.seen(wanted)

    def close(self) -> None:
        self._open.close()
