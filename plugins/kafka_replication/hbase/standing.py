"""Looks at what stands in a table, whoever wrote it.

A record's place is its source offset. Rows of others have no place: they get the offsets behind our last record, in the
partition in whose part of the table their keys lie. What an attempt of ours has written and not committed is not shown:
the next one writes it again, or takes it away.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import islice

from kafka_replication.hbase.client import Client
from kafka_replication.hbase.keyed_rows import MOST_FOREIGN, NewestPlace
from kafka_replication.hbase.quarantine import HBaseQuarantine
from kafka_replication.hbase.rows import Cells, Origin, Span, decoded, is_gone, offset_of
from kafka_replication.hbase.scans import Scans
from kafka_replication.hbase.tables import Tables
from kafka_replication.ledger.entries import FailedRecord
from kafka_replication.ledger.placement import Part
from kafka_replication.model.errors import GapFound, ReplicationError
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.model.targets import LATEST, RECORDS, Shape
from kafka_replication.sinks.port import Record, digest_of
from kafka_replication.targets.journal import JournalLedger, Writer, Writers
from kafka_replication.targets.port import Failures
from kafka_replication.targets.unhidden import ContentReader, UnhiddenStanding
from kafka_replication.verification.digest import BatchDigest
from kafka_replication.verification.digests import Digest
from kafka_replication.verification.verify import PartDigest


def outside(tables: Tables, table: str, origin: Origin, ranges: Iterable[OffsetRange]) -> list[Span]:
    """As that of the origin, in a table that may be gone: then nothing is there."""
    partitions = tables.partitions(table)
    return list(origin.outside(partitions, ranges)) if partitions else []


class HBaseStanding(UnhiddenStanding):
    """A `Standing`."""

    def __init__(self, client: Client, ledger: JournalLedger, shape: Shape = RECORDS) -> None:
        self._client, self._ledger, self._shape = client, ledger, shape

    def _place(self, at: TopicPartition, writers: Writers) -> Place | NewestPlace:
        return (NewestPlace if self._shape == LATEST else Place)(self._client, at, writers.get(at))

    def end_of(self, at: TopicPartition, writers: Writers) -> int:
        """The end of a partition of an existing table."""
        return self._place(at, writers).end

    def ends(self, wanted: Iterable[TopicPartition]) -> tuple[dict[TopicPartition, int], Failures]:
        ends, failed = dict[TopicPartition, int](), dict[TopicPartition, ReplicationError]()
        try:
            writers = self._ledger.writers()
        except ReplicationError as error:
            return {}, dict.fromkeys(wanted, error)
        for at in wanted:
            try:
                ends[at] = self.end_of(at, writers)
            except ReplicationError as error:
                failed[at] = error
        return ends, failed

    def first_record(self, at: TopicPartition, wanted: OffsetRange) -> int | None:
        return self._place(at, self._ledger.writers()).first(wanted)

    def reader(self, at: TopicPartition) -> AbstractContextManager[ContentReader]:
        return nullcontext(ContentReader(self._place(at, self._ledger.writers()).content))


class Place:
    """One partition of a table."""

    def __init__(self, client: Client, at: TopicPartition, writer: Writer | None) -> None:
        key, position = writer or (None, None)
        self._scans, self._tables, self._at = Scans(client, at.topic), Tables(client), at
        self._covered = tuple(position.coverage) if position else ()
        generation = position.generation if position else 1
        # Without a position nothing there is ours.
        self._ours = Origin.of(key, generation) if key else None
        self._origin = self._ours or Origin("", generation, at, at.partition)

    @property
    def own_end(self) -> int:
        """One past our highest committed offset."""
        for covered in reversed(self._covered):
            for row, cells in self._scans.origins(self._origin.span(covered), backwards=True):
                if self._is_ours(row, cells) and not is_gone(cells):
                    return offset_of(row) + 1
        return 0

    def _others(self) -> list[bytes]:
        """The keys of rows that are not ours."""
        if not self._tables.exists(self._at.topic):
            raise GapFound(f"{self._at.topic} on the target is gone", "restore it")
        spans = outside(self._tables, self._at.topic, self._origin, self._covered)
        return list(islice(self._scans.foreign(spans, self._is_ours), MOST_FOREIGN))

    def _is_ours(self, row: bytes, cells: Cells) -> bool:
        return self._ours is not None and self._ours.owns(row, cells)

    @property
    def end(self) -> int:
        """One past the last row."""
        return self.own_end + len(self._others())

    def first(self, wanted: OffsetRange) -> int | None:
        return next((record[0] for record in self.content(wanted)), None)

    def content(self, wanted: OffsetRange) -> Iterator[Record]:
        """Ours in their order, then those of others, whose content is the key of the row."""
        for covered in self._covered:
            begin, end = max(covered.from_, wanted.from_), min(covered.until, wanted.until)
            if begin < end:
                yield from records(self._scans, self._origin, OffsetRange(begin, end))
        own_end = self.own_end
        if wanted.until > own_end:
            for number, row in enumerate(self._others(), own_end):
                if number in wanted:
                    yield number, -1, row, None, None


def records(scans: Scans, origin: Origin, wanted: OffsetRange) -> Iterator[Record]:
    """The records of an origin in these offsets, in their order. What is none of its records any more has -1."""
    for row, cells in scans.large_rows(origin.span(wanted)):
        ours = origin.owns(row, cells)
        if ours and is_gone(cells):
            continue
        try:
            if not ours:
                raise ValueError("of another origin")
            yield decoded(row, cells)
        except ValueError:
            yield -1, -1, row, b"".join(cells.values()), None


class HBaseVerifier:
    """A `TargetReader`: what a scan finds at the offsets of a receipt."""

    def __init__(self, client: Client, ledger: JournalLedger, key: PartitionKey) -> None:
        self._client, self._ledger, self._key = client, ledger, key
        self._scans = Scans(client, key.target_topic)
        self._origin: Origin | None = None

    @property
    def origin(self) -> Origin:
        """The origin of what is read."""
        if self._origin is None:
            position = self._ledger.position(self._key)
            if position is not None:
                Tables(self._client).check_ids(self._key, position.ids)
            self._origin = Origin.of(self._key, position.generation if position else 0)
        return self._origin

    def read(self, part: Part, digest: Digest | None) -> PartDigest:
        origin, found = self.origin, 0
        for wanted in part.offsets:
            if digest is None:
                found += sum(not is_gone(cells) for _, cells in self._scans.origins(origin.span(wanted)))
                continue
            for _, *fields in records(self._scans, origin, wanted):
                found += 1
                if not isinstance(digest, BatchDigest):
                    digest.add(*fields)
        return PartDigest(found, digest.hexdigest() if digest is not None else "")

    def quarantined(self, failed: FailedRecord) -> bool:
        found = HBaseQuarantine(self._client).stored(self._key, failed)
        return found is not None and failed.digest in ("", digest_of(found))
