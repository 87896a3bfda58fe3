"""What the conformance suites of sinks, engines and transactions work on: an implementation, a fresh source and target.

A suite is a list of plain functions that take a case and raise AssertionError, so that the same functions can be run
on implementations that are broken on purpose.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kafka_replication.config import Copy, Replication
from kafka_replication.copying.engine import Chunk, CopyEngine, CopyTask, HandOver
from kafka_replication.kafka.engines import ENGINES, FALLBACK
from kafka_replication.kafka.ledger import KafkaLedger
from kafka_replication.kafka.metadata import offsets, topics
from kafka_replication.kafka.write.sink import KafkaSink
from kafka_replication.kafka.write.start_offsets import StartOffsets
from kafka_replication.ledger.entries import Ids, Position, Receipt
from kafka_replication.ledger.placement import KafkaPartitions, KafkaSegments, Part, Placement, Segment
from kafka_replication.model.delivery import EXACTLY_ONCE, Delivery
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.sinks.port import Record, Sink, SinkSession
from kafka_replication.verification.digest import Fingerprint
from tests.support.checker import Record as Seen
from tests.support.checker import read
from tests.support.scenario import Cluster, Rec

E = TypeVar("E", bound=ReplicationError)
SETTINGS = Copy(transaction_timeout=20, chunk_seconds=10, stall_timeout=20)


def raised(kind: type[E], call: Callable[[], object]) -> E:
    """The error of this kind that ``call`` raises."""
    try:
        call()
    except kind as e:
        return e
    raise AssertionError(f"{kind.__name__} was not raised")


@dataclass
class CopyCase:
    """An engine and a sink under test, and one opened partition between a source and a target of their own."""

    source: Cluster
    target: Cluster
    topic: str = field(default_factory=lambda: f"contract-{uuid.uuid4().hex[:8]}")
    target_config: dict[str, str] = field(default_factory=dict)
    delivery: Delivery = EXACTLY_ONCE
    engine_name: str = "record"

    def __post_init__(self) -> None:
        self.source.create(self.topic)
        self.target.create(self.topic, config=self.target_config)
        self.key = PartitionKey(self.topic, TopicPartition(self.topic, 0), self.topic)
        settings = SETTINGS.model_copy(update={"engine": self.engine_name})
        self.sink: Sink = KafkaSink(self.target_settings, settings, delivery=self.delivery)
        self.engine: CopyEngine = ENGINES[self.engine_name](self.source_settings, settings, None)
        self._open()

    @property
    def source_settings(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.source.bootstrap}

    @property
    def target_settings(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.target.bootstrap}

    @property
    def ids(self) -> Ids:
        """Of both topics as they are now."""
        source, target = (topics.topic_ids(side.admin, [self.topic])[self.topic] for side in (self.source, self.target))
        return Ids("source", source, target)

    def _open(self) -> None:
        name, settings, admin = self.key.replication, self.target_settings, self.target.admin
        file = {"source": {"connection": "a"}, "target": {"connection": "b"}, "topics": {"include": [self.topic]}}
        ledger = KafkaLedger(settings, admin, name)
        ledger.ensure(Replication.model_validate({"name": name, **file}))
        with closing(StartOffsets(name, ledger, settings, admin, SETTINGS, delivery=self.delivery)) as opening:
            opening.fence()
            opening.commit({self.key: Position(generation=1, ids=self.ids, start=0, next_offset=0)}, {})

    def visible(self) -> list[tuple[int, Seen]]:
        """What a ``read_committed`` reader of the target finds, read without the product."""
        return read(self.target.bootstrap, self.topic, 0)

    def values(self) -> list[bytes | None]:
        return [record.value for _, record in self.visible()]

    def produced(self) -> list[Seen]:
        """What a ``read_committed`` reader of the source finds."""
        return [record for _, record in read(self.source.bootstrap, self.topic, 0)]

    def produce(self, *records: Rec) -> None:
        self.source.produce(self.topic, records)

    def source_end(self) -> int:
        at = TopicPartition(self.topic, 0)
        return offsets.last_stable(self.source.admin, [at])[at]

    def target_end(self) -> int:
        at = TopicPartition(self.topic, 0)
        return offsets.high_watermarks(self.target.admin, [at])[at]

    @contextmanager
    def session(self) -> Iterator[SinkSession]:
        """A session that has not fenced yet."""
        with self.sink.session(self.key, self.ids) as session:
            yield session

    @contextmanager
    def fenced(self) -> Iterator[tuple[SinkSession, Position]]:
        """A session that fenced the others, and the position that it read then."""
        with self.session() as session:
            session.fence()
            position = session.position()
            assert position is not None, "the partition was opened"
            yield session, position

    def task(self, until: int, from_: int = 0) -> CopyTask:
        return CopyTask(key=self.key, range=OffsetRange(from_, until), ids=self.ids, generation=1, run_id="contract")

    def copy(self, left: OffsetRange, most_records: int = 100_000) -> list[Chunk]:
        """Copy a range with engine and sink, as the copier does; the chunks. What the engine hands over is copied by
        another one.
        """
        chunks, engine, until = list[Chunk](), self.engine, left.until
        while left.span:
            before = len(chunks)
            try:
                chunks += self._session(engine, OffsetRange(left.from_, until), left.until, most_records)
            except HandOver as e:
                left = OffsetRange(chunks[-1].range.until, left.until) if chunks[before:] else left
                engine, until = ENGINES[FALLBACK](self.source_settings, SETTINGS, None), e.until
                continue
            left, engine, until = OffsetRange(until, left.until), self.engine, left.until
        return chunks

    def _session(self, engine: CopyEngine, left: OffsetRange, end: int, most_records: int) -> Iterator[Chunk]:
        with self.fenced() as (session, position), engine.reader(self.task(end)) as reader:
            session.check_target(position)
            while left.span:
                chunk = reader.copy_chunk(left, position, session, most_records)
                position = chunk.moved(position)
                session.commit(position, self.receipt(chunk, engine))
                left = OffsetRange(chunk.range.until, left.until)
                yield chunk

    def receipt(self, chunk: Chunk, engine: CopyEngine | None = None) -> Receipt:
        engine = engine or self.engine
        return Receipt(
            generation=1,
            range=chunk.range,
            count=chunk.count,
            bytes=chunk.bytes,
            digest=chunk.digest,
            digest_kind=engine.digest_kind,
            engine=engine.name,
            placement=chunk.placement,
            ids=self.ids,
            run_id="contract",
            time="2026-01-01T00:00:00.000Z",
        )


def records(count: int, first: int = 0) -> list[Record]:
    """Decoded records as an engine hands them over, at the source offsets from ``first`` on."""
    return [(n, 1_700_000_000_000 + n, b"k%d" % n, b"v%d" % n, None) for n in range(first, first + count)]


def write(session: SinkSession, batch: list[Record]) -> Placement:
    """One chunk of these records, in two calls, not committed yet."""
    writer = session.begin()
    writer.write(batch[:2])
    writer.write(batch[2:])
    return writer.finish(digest_of(batch))


def digest_of(batch: list[Record]) -> str:
    digest = Fingerprint()
    for _, timestamp, key, value, headers in batch:
        digest.add(timestamp, key, value, headers)
    return digest.hexdigest()


def chunk_of(batch: list[Record], placement: Placement, until: int | None = None) -> Chunk:
    """The chunk that says what was written; without records it covers the offsets up to ``until``."""
    from_ = batch[0][0] if batch else 0
    return Chunk(
        range=OffsetRange(from_, batch[-1][0] + 1 if until is None else until),
        count=len(batch),
        bytes=0,
        digest=digest_of(batch),
        placement=placement,
        leader_epoch=None,
    )


def commit(case: CopyCase, session: SinkSession, position: Position, chunk: Chunk) -> Position:
    """Commit this chunk behind ``position``; the new position."""
    moved = chunk.moved(position)
    session.commit(moved, case.receipt(chunk))
    return moved


def segments_of(placement: Placement) -> tuple[Segment, ...]:
    """The segments of a Kafka target."""
    assert isinstance(placement, KafkaSegments)
    return placement.segments


def parts_of(placement: Placement) -> tuple[Part, ...]:
    """The same of any chunk on a Kafka target."""
    return placement.parts if isinstance(placement, KafkaPartitions) else tuple(s.part for s in segments_of(placement))


def write_and_commit(case: CopyCase, session: SinkSession, position: Position, batch: list[Record]) -> Position:
    return commit(case, session, position, chunk_of(batch, write(session, batch)))
