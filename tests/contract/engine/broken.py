"""Engines that are broken on purpose: the suite must notice each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

from kafka_replication.copying.engine import Chunk, CopyEngine, CopyTask, SourceReader
from kafka_replication.copying.sink import Record, RecordWriter, Screen, Sink, SinkSession
from kafka_replication.ledger.entries import FailedRecord, Ids, Position
from kafka_replication.ledger.offset_map import WrittenOffsets
from kafka_replication.ledger.placement import Placement
from kafka_replication.model.choices import Failure
from kafka_replication.model.offsets import OffsetRange
from tests.contract.engine import checks
from tests.contract.engine.checks import Check

Change = Callable[[list[Record]], list[Record]]


@dataclass
class ChangedWriter:
    """A writer that gets other records than the engine's."""

    writer: RecordWriter
    change: Change

    def write(self, records: Sequence[Record]) -> None:
        self.writer.write(self.change(list(records)))

    def finish(self, digest: str) -> Placement:
        return self.writer.finish(digest)

    @property
    def screen(self) -> Screen | None:
        return self.writer.screen

    def set_aside(self, record: Record, failure: Failure) -> None:
        self.writer.set_aside(record, failure)

    @property
    def full(self) -> bool:
        return self.writer.full

    @property
    def failures(self) -> tuple[FailedRecord, ...]:
        return self.writer.failures


class ChangedSession:
    """A session whose chunks get other records than the engine's."""

    def __init__(self, session: SinkSession, change: Change) -> None:
        self._session, self._change = session, change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def begin(self) -> RecordWriter:
        return ChangedWriter(self._session.begin(), self._change)


def changed(session: SinkSession, change: Change) -> SinkSession:
    return cast(SinkSession, ChangedSession(session, change))


@dataclass
class BrokenReader:
    """Passes on to a reader that works; the subclasses break one thing each."""

    reader: SourceReader

    @property
    def throttled(self) -> float:
        return self.reader.throttled

    def check_ids(self, ids: Ids) -> None:
        self.reader.check_ids(ids)

    def copy_chunk(self, left: OffsetRange, position: Position, target: SinkSession, most_records: int) -> Chunk:
        return self.reader.copy_chunk(left, position, target, most_records)


class Drops(BrokenReader):
    """Loses a record."""

    def copy_chunk(self, left: OffsetRange, position: Position, target: SinkSession, most_records: int) -> Chunk:
        target = changed(target, lambda records: records[:3] + records[4:])
        return super().copy_chunk(left, position, target, most_records)


class Doubles(BrokenReader):
    def copy_chunk(self, left: OffsetRange, position: Position, target: SinkSession, most_records: int) -> Chunk:
        target = changed(target, lambda records: records[:1] + records)
        return super().copy_chunk(left, position, target, most_records)


class Reorders(BrokenReader):
    def copy_chunk(self, left: OffsetRange, position: Position, target: SinkSession, most_records: int) -> Chunk:
        target = changed(target, lambda records: records[::-1])
        return super().copy_chunk(left, position, target, most_records)


class LosesHeaders(BrokenReader):
    def copy_chunk(self, left: OffsetRange, position: Position, target: SinkSession, most_records: int) -> Chunk:
        target = changed(target, lambda records: [(*record[:4], None) for record in records])
        return super().copy_chunk(left, position, target, most_records)


class TakesNullForEmpty(BrokenReader):
    def copy_chunk(self, left: OffsetRange, position: Position, target: SinkSession, most_records: int) -> Chunk:
        def change(records: list[Record]) -> list[Record]:
            return [(at, time, key or b"", value or b"", headers) for at, time, key, value, headers in records]

        return super().copy_chunk(left, position, changed(target, change), most_records)


class IgnoresTheLimit(BrokenReader):
    def copy_chunk(self, left: OffsetRange, position: Position, target: SinkSession, most_records: int) -> Chunk:
        return super().copy_chunk(left, position, target, 100_000)


class EndsTooEarly(BrokenReader):
    """Says that it has read to the end of the range when it has not."""

    def copy_chunk(self, left: OffsetRange, position: Position, target: SinkSession, most_records: int) -> Chunk:
        return replace(super().copy_chunk(left, position, target, 4), range=left)


class EndsBehindTheLastRecord(BrokenReader):
    """Leaves the offsets without visible records at the end of a range out."""

    def copy_chunk(self, left: OffsetRange, position: Position, target: SinkSession, most_records: int) -> Chunk:
        chunk = super().copy_chunk(left, position, target, most_records)
        return replace(chunk, range=OffsetRange(left.from_, left.from_ + max(1, chunk.count)))


class StartsAtTheBeginning(BrokenReader):
    def copy_chunk(self, left: OffsetRange, position: Position, target: SinkSession, most_records: int) -> Chunk:
        return replace(
            super().copy_chunk(OffsetRange(0, left.until), position, target, most_records),
            range=OffsetRange(left.from_, left.until),
        )


class InventsTheDigest(BrokenReader):
    def copy_chunk(self, left: OffsetRange, position: Position, target: SinkSession, most_records: int) -> Chunk:
        return replace(super().copy_chunk(left, position, target, most_records), digest="0" * 32)


class CountsFromZero(BrokenReader):
    def copy_chunk(self, left: OffsetRange, position: Position, target: SinkSession, most_records: int) -> Chunk:
        chunk = super().copy_chunk(left, position, target, most_records)
        offsets = WrittenOffsets()
        offsets.add(range(chunk.range.from_, chunk.range.from_ + chunk.count))
        return replace(chunk, offsets=offsets)


class ForgetsTheEpoch(BrokenReader):
    def copy_chunk(self, left: OffsetRange, position: Position, target: SinkSession, most_records: int) -> Chunk:
        return replace(super().copy_chunk(left, position, target, most_records), leader_epoch=None)


class CountsStoredBytes(BrokenReader):
    def copy_chunk(self, left: OffsetRange, position: Position, target: SinkSession, most_records: int) -> Chunk:
        chunk = super().copy_chunk(left, position, target, most_records)
        return replace(chunk, bytes=chunk.bytes // 3)


class TakesAnyTopic(BrokenReader):
    def check_ids(self, ids: Ids) -> None:
        pass


@dataclass
class BrokenEngine:
    """An engine whose readers are broken."""

    engine: CopyEngine
    broken: Callable[[SourceReader], SourceReader]
    name: str = field(init=False)
    digest_kind: str = field(init=False)

    def __post_init__(self) -> None:
        self.name, self.digest_kind = f"broken {self.engine.name}", self.engine.digest_kind

    def supports(self, task: CopyTask, sink: Sink) -> str | None:
        return self.engine.supports(task, sink)

    @contextmanager
    def reader(self, task: CopyTask) -> Iterator[SourceReader]:
        with self.engine.reader(task) as reader:
            yield self.broken(reader)


ALL: list[tuple[Callable[[SourceReader], SourceReader], Check]] = [
    (Drops, checks.every_record_arrives_unchanged_and_in_order),
    (Doubles, checks.every_record_arrives_unchanged_and_in_order),
    (Reorders, checks.every_record_arrives_unchanged_and_in_order),
    (LosesHeaders, checks.every_record_arrives_unchanged_and_in_order),
    (TakesNullForEmpty, checks.every_record_arrives_unchanged_and_in_order),
    (IgnoresTheLimit, checks.chunks_end_at_the_number_of_records_asked_for),
    (EndsTooEarly, checks.nothing_outside_the_range_is_copied),
    (EndsBehindTheLastRecord, checks.a_range_of_markers_alone_is_a_chunk_without_records),
    (StartsAtTheBeginning, checks.nothing_outside_the_range_is_copied),
    (InventsTheDigest, checks.a_record_digest_is_that_of_the_records),
    (CountsStoredBytes, checks.bytes_are_those_of_keys_values_and_headers),
    (CountsFromZero, checks.a_chunk_says_which_source_offsets_its_records_have),
    (ForgetsTheEpoch, checks.the_leader_epoch_of_the_last_offset_is_known),
    (TakesAnyTopic, checks.a_source_that_was_re_created_is_refused),
]
