"""The case that each check of a sink gets, and what the checks write, commit and read with it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from kafka_replication.config import Replication
from kafka_replication.copying.engine import Chunk
from kafka_replication.copying.sink import Record, Sink, SinkSession
from kafka_replication.ledger.entries import Ids, Position, Receipt
from kafka_replication.ledger.placement import KafkaPartitions, KafkaSegments, Part, Placement, Segment
from kafka_replication.model.choices import EXACTLY_ONCE, Delivery
from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition
from kafka_replication.targets.port import Target
from kafka_replication.targets.start_offsets import StartOffsets
from kafka_replication.verification.digests import DIGEST_KIND, Fingerprint
from tests.conformance.ground import Ground, opened


@dataclass
class SinkCase:
    """A sink under test, and one opened partition of a target topic of its own."""

    ground: Ground
    topic: str = field(default_factory=lambda: f"contract-{uuid.uuid4().hex[:8]}")
    delivery: Delivery = EXACTLY_ONCE

    def __post_init__(self) -> None:
        self.create()
        self.key = PartitionKey(self.topic, TopicPartition(self.topic, 0), self.topic)
        self.target = self.opened()
        self.sink: Sink = self.target.sink
        self._open()

    def create(self) -> None:
        self.ground.create(self.topic)

    def opened(self) -> Target:
        return opened(self.ground, self.topic, self.delivery)

    @property
    def ids(self) -> Ids:
        """Of the topics as they are now."""
        return Ids("source", "source-topic", self.ground.id_of(self.topic))

    @property
    def file(self) -> Replication:
        """A file of which the case may be a replication."""
        sides = {"source": {"connection": "a"}, "target": {"connection": "b"}}
        rest = {"topics": {"include": [self.topic]}, "failures": {"policy": "quarantine"}}
        return Replication.model_validate({"name": self.topic, **sides, **rest})

    def _open(self) -> None:
        self.target.ledger.ensure(self.file)
        with closing(StartOffsets(self.topic, self.target, delivery=self.delivery)) as opening:
            opening.fence()
            opening.commit({self.key: Position(generation=1, ids=self.ids, start=0, next_offset=0)}, {})

    def visible(self) -> list[tuple[int, Record]]:
        """The records that a reader of the target finds, read without the product."""
        return self.ground.visible(self.topic)

    def values(self) -> list[bytes | None]:
        return [record[3] for _, record in self.visible()]

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

    def receipt(self, chunk: Chunk, engine: str = "record/1", digest_kind: str = DIGEST_KIND) -> Receipt:
        return Receipt(
            generation=1,
            range=chunk.range,
            count=chunk.count,
            bytes=chunk.bytes,
            digest=chunk.digest,
            digest_kind=digest_kind,
            engine=engine,
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
    return writer.finish(digest_of_all(batch))


def digest_of_all(batch: list[Record]) -> str:
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
        digest=digest_of_all(batch),
        placement=placement,
        leader_epoch=None,
    )


def commit(case: SinkCase, session: SinkSession, position: Position, chunk: Chunk) -> Position:
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


def write_and_commit(case: SinkCase, session: SinkSession, position: Position, batch: list[Record]) -> Position:
    return commit(case, session, position, chunk_of(batch, write(session, batch)))
