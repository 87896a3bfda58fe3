"""The record engine: decodes every record of the source and writes it to the sink.

The copy engines by their names for `copy.engine`, and the choice of one for a range.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import cached_property
from typing import TYPE_CHECKING

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from kafka_replication.config import Copy
from kafka_replication.copying.engine import ChosenEngine, Chunk, CopyEngine, CopyTask, choose
from kafka_replication.copying.pipeline import Pipeline, PipelineWriter
from kafka_replication.copying.sink import RecordWriter, Sink, SinkSession
from kafka_replication.copying.steps import Origin
from kafka_replication.kafka import clients, offsets, topics
from kafka_replication.kafka.brokers import unsupported
from kafka_replication.kafka.callbacks import Throttling
from kafka_replication.kafka.chunk_reader import ChunkReader, SecondLook
from kafka_replication.kafka.consumer_pool import Loan, Pace, borrow, paced
from kafka_replication.kafka.reading import PartitionReader
from kafka_replication.ledger.entries import Ids, Position
from kafka_replication.model import choices, commands
from kafka_replication.model.choices import BATCH, RECORD
from kafka_replication.model.errors import Refused, SessionEnded
from kafka_replication.model.offsets import OffsetRange, consumer_group
from kafka_replication.runtime.deadline import NEVER, Deadline
from kafka_replication.runtime.extras import without
from kafka_replication.runtime.garbage import without_gc
from kafka_replication.verification.digests import DIGEST_KIND, Headers

if TYPE_CHECKING:
    from kafka_replication.kafka.batch_scan import HeaderNames


log = logging.getLogger(__name__)
# Records that a pipeline gets at a time where it can set records aside: a chunk ends behind those that fill it.
AT_ONCE = 500


class RecordEngine:
    """Copies every record that confluent-kafka can read unchanged; refuses others by name. Every sink takes records."""

    name = "record/1"
    digest_kind = DIGEST_KIND

    def __init__(
        self,
        source: clients.ClientConfig,
        settings: Copy,
        pipeline: Pipeline | None = None,
        deadline: Deadline = NEVER,
    ) -> None:
        self._source, self._settings, self._pipeline, self._deadline = source, settings, pipeline, deadline

    def supports(self, task: CopyTask, sink: Sink) -> str | None:  # noqa: ARG002  # every range, every sink
        return None

    def reader(self, task: CopyTask) -> closing[RecordReader]:
        return closing(RecordReader(task, self._source, self._settings, self._pipeline, self._deadline))


class RecordReader:
    """A `SourceReader` over one consumer."""

    def __init__(
        self,
        task: CopyTask,
        source: clients.ClientConfig,
        settings: Copy,
        pipeline: Pipeline | None,
        deadline: Deadline,
    ) -> None:
        self._pipeline, self._deadline = pipeline, deadline
        self._origin = Origin(task.ids.source_cluster, task.key.source.topic, task.key.source.partition)
        self._key, self._at, self._source, self._settings = task.key, task.key.source, source, settings
        self._group = consumer_group(task.key.replication)
        self._pace, self._paced = Pace(settings.throughput_limit), paced(source, settings.throughput_limit)
        self._throttling = Throttling(str(self._at), "source")
        self._hands_over = task.hands_over
        self._next: int | None = None  # the offset that the consumer reads next
        self._epoch_at_assign: int | None = None  # the source's leader epoch before the first record was read
        self._topic_id = task.ids.source_topic
        self._loan: Loan | None = None  # of the consumer, if it is one of the pool
        self._sound = True  # whether the consumer may be used again

    @cached_property
    def _admin(self) -> AdminClient:
        return clients.shared_admin(self._source)

    @cached_property
    def _reader(self) -> PartitionReader:
        """With a consumer of its own, which asks the broker whether the log was truncated."""
        return self._reading(clients.consumer(self._throttling.listening(self._paced), self._group))

    def _reading(self, consumer: Consumer) -> PartitionReader:
        return PartitionReader(consumer, self._at, self._settings.stall_timeout)

    @cached_property
    def _names(self) -> HeaderNames | None:
        """None if no connection of our own can be made. Raises ImportError."""
        from kafka_replication.kafka.batch_scan import BatchScan, HeaderNames  # needs the batch engine's packages

        if why := unsupported(self._source):
            self._cannot_compare(why)
            return None
        limit = self._settings.throughput_limit
        scan = BatchScan(self._source, self._at, self._settings.stall_timeout, self._throttling, limit)
        return HeaderNames(self._at, scan)

    def _wrong(self, offset: int, headers: Headers) -> str | None:
        """As `HeaderNames.wrong`; the first record with headers opens a connection. Without one, a header name with a
        NUL is cut, and nothing shows that.
        """
        try:
            return None if self._names is None else self._names.wrong(offset, headers)
        except ImportError as missing:
            self._close_names()
            self._names = None
            self._cannot_compare(without(missing))
            return None

    def _cannot_compare(self, why: str) -> None:
        log.warning(
            "%s: names of headers are not compared with the stored ones, so a NUL would cut them: %s", self._at, why
        )

    @property
    def throttled(self) -> float:
        return self._throttling.seconds

    def close(self) -> None:
        self._close_names()
        if clients.made(self, "_reader") is not None:
            self._reader.come_to_rest()
            if self._loan is not None and self._sound:
                self._loan.give_back()
            else:
                self._reader.consumer.close()
            self._loan = None
            del self._reader

    def _close_names(self) -> None:
        if (names := clients.made(self, "_names")) is not None:
            names.close()

    def check_ids(self, ids: Ids) -> None:
        topics.check_id(self._admin, self._at.topic, ids.source_topic, "source")

    def copy_chunk(self, left: OffsetRange, position: Position, target: SinkSession, most_records: int) -> Chunk:
        if self._next != left.from_:
            self._go_to(left, position)
        self._sound = False
        chunk = ChunkReader(
            source=self._reader,
            left=left,
            most_records=most_records,
            settings=self._settings,
            pace=self._pace,
            deadline=self._deadline,
            hands_over=self._hands_over,
            wrong_names=self._wrong,
        )
        self._pace.wait()
        writer = target.begin()
        piped = None if self._pipeline is None else PipelineWriter(self._pipeline, self._origin, writer)
        if piped is None:
            with without_gc():
                self._read(chunk, writer)
        else:  # a user's function may leave reference cycles, so garbage collection stays on
            if piped.screen is not None:
                chunk.at_once = AT_ONCE
            self._read(chunk, piped)
        written = chunk.seen if piped is None else piped.written
        digest = written.hexdigest()
        placement = writer.finish(digest) if piped is None else piped.finish()
        copied = Chunk(
            range=OffsetRange(left.from_, chunk.position),
            count=written.count,
            bytes=written.bytes,
            digest=digest,
            placement=placement,
            leader_epoch=self._last_epoch(chunk),
            sources=piped.copied if piped else None,
            filtered=piped.filtered if piped else 0,
            failures=writer.failures,
            transform=piped.pipeline.identity if piped else None,
            offsets=piped.offsets if piped else chunk.offsets,
        )
        self._sound = self._next is not None
        return copied

    def _read(self, chunk: ChunkReader, writer: RecordWriter | PipelineWriter) -> None:
        """Read a chunk. What lies before a batch that cannot be read is a chunk of its own."""
        chunk.read(writer)
        self._next = None if chunk.stopped else chunk.position
        if chunk.stopped:
            self.close()  # what it gives from now on cannot be relied on
            if chunk.position == chunk.left.from_:
                chunk.position = self._before_unreadable(chunk)

    def _before_unreadable(self, chunk: ChunkReader) -> int:
        """The end of the range, if the batch that stopped its reader lies behind it. Raises Refused if it does not,
        SessionEnded if it can be read now.
        """
        looking = SecondLook(
            source=self._source,
            admin=self._admin,
            group=self._group,
            at=self._at,
            stall=self._settings.stall_timeout,
        )
        unreadable = looking.unreadable(chunk.position)
        if unreadable is None:
            raise SessionEnded(
                f"{self._at}: a batch at or after offset {chunk.position} was corrupted when it was read, and is not"
                " now",
                "a new session reads it again",
            )
        if unreadable.from_ >= chunk.left.until:
            return chunk.left.until
        raise Refused(
            f"{self._at}: the batch with the offsets {unreadable} is corrupted: {chunk.stopped}. Everything before it"
            " is copied, nothing after it",
            "repair the broker's log or let a good replica lead, then run again; or give up these offsets:"
            f" {commands.approve_gap(self._key, unreadable)}",
        )

    def _go_to(self, left: OffsetRange, position: Position) -> None:
        self._epoch_at_assign = offsets.shared_leader_epoch(self._admin, self._at)
        # A consumer of the pool does if the leader epoch is the stored one, or none is stored: then no leader came that
        # could have truncated the log. That saves its connections.
        stored = position.leader_epoch
        does = stored is None or stored < 0 or stored == self._epoch_at_assign
        if self._loan is not None and not does:
            self.close()
        if does and clients.made(self, "_reader") is None and clients.STATISTICS.isdisjoint(self._source):
            topic = self._at.topic, self._topic_id
            self._loan = borrow(self._paced, self._group, reads=topic, throttled=self._throttling)
            self._reader = self._reading(self._loan.consumer)
        self._reader.come_to_rest()
        if left.from_ < position.next_offset and position.leader_epoch is not None:
            self._reader.check_not_truncated(position.next_offset, position.leader_epoch)
        self._reader.assign(left.from_, position.leader_epoch if left.from_ == position.next_offset else None)

    def _last_epoch(self, chunk: ChunkReader) -> int | None:
        """The leader epoch of the chunk's last offset.

        If the chunk ends in a control record or an aborted record, that record may have a later epoch than the last
        record read. Then the partition's current epoch is taken, provided it did not change since reading began: all
        offsets read then belong to that epoch or an earlier one.
        """
        if chunk.last is not None and chunk.last.offset() == chunk.position - 1:
            return chunk.last.leader_epoch()
        now = offsets.shared_leader_epoch(self._admin, self._at)
        return now if now == self._epoch_at_assign else None


Make = Callable[..., CopyEngine]  # of a source, the settings, a pipeline or None, and the deadline


def _batch(source: clients.ClientConfig, settings: Copy, pipeline: Pipeline | None, _: Deadline = NEVER) -> CopyEngine:
    from kafka_replication.kafka.batch_engine import BatchEngine  # only a worker that needs it loads it

    return BatchEngine(source, settings, pipeline)


ENGINES: Mapping[str, Make] = {RECORD: RecordEngine, BATCH: _batch}
FALLBACK = RECORD  # supports every range


def engine_for(
    task: CopyTask,
    settings: Copy,
    source: clients.ClientConfig,
    sink: Sink,
    pipeline: Pipeline | None = None,
    deadline: Deadline = NEVER,
) -> ChosenEngine:
    """The engine that `copy.engine` names, or the record engine if that one does not support the range. For `auto` that
    is the batch engine, but for a short range, and where its packages are not installed.
    """
    engines, absent = list[CopyEngine](), ""
    choice = choices.chosen(settings.engine, task.range.span)
    for name in dict.fromkeys((choice.engine, FALLBACK)):
        try:
            engines.append(ENGINES[name](source, settings, pipeline, deadline))
        except ImportError as missing:
            if settings.engine != choices.AUTO:
                raise
            absent = without(missing)
            log.info("%s %s: not in whole batches: %s", task.key.source, task.range, absent)
    chosen = choose(engines, task, sink)
    # A slice, or the rest of a range, may be short although its range is not.
    short = choice.why if (task.planned_engine, choice.engine) == (BATCH, RECORD) else ""
    return chosen._replace(why=absent or chosen.why or short)


def exact_for(
    task: CopyTask,
    settings: Copy,
    source: clients.ClientConfig,
    sink: Sink,
    pipeline: Pipeline | None = None,
    deadline: Deadline = NEVER,
) -> CopyEngine | None:
    """The batch engine, for records that the client of the record engine would change (header bytes, for example), even
    where it is slower; None if it cannot copy to this target. Raises Unreachable.
    """
    insisting = settings.model_copy(update={"engine": BATCH})
    try:
        engine = ENGINES[BATCH](source, insisting, pipeline, deadline)
    except ImportError:
        return None
    return None if engine.supports(task, sink) else engine
