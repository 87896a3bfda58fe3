"""The case of the engines' suite: that of sinks, and a source with an engine that reads it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kafka_replication.copying.engine import Chunk, CopyEngine, CopyTask, HandOver
from kafka_replication.kafka import offsets, topics
from kafka_replication.kafka.record_engine import ENGINES, FALLBACK
from kafka_replication.ledger.entries import Ids, Receipt
from kafka_replication.model.choices import EXACTLY_ONCE, Delivery
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.targets.port import Target
from tests.conformance.ground import SETTINGS, opened
from tests.conformance.sink_case import SinkCase
from tests.contract.kafka_ground import KafkaGround
from tests.support.checker import Record as Seen
from tests.support.checker import read
from tests.support.scenario import Cluster, Rec


class CopyCase(SinkCase):
    """An engine and a sink under test, and one opened partition between a source and a target of their own."""

    def __init__(
        self,
        source: Cluster,
        target: Cluster,
        *,
        config: dict[str, str] | None = None,
        delivery: Delivery = EXACTLY_ONCE,
        engine_name: str = "record",
    ) -> None:
        self.source, self.cluster = source, target
        self.settings = SETTINGS.model_copy(update={"engine": engine_name})
        super().__init__(KafkaGround(target, config=config or {}), delivery=delivery)
        self.engine: CopyEngine = ENGINES[engine_name](self.source_settings, self.settings, None)

    def create(self) -> None:
        self.source.create(self.topic)
        super().create()

    def opened(self) -> Target:
        return opened(self.ground, self.topic, self.delivery, settings=self.settings)

    @property
    def source_settings(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.source.bootstrap}

    @property
    def target_settings(self) -> dict[str, Any]:
        return dict(self.ground.connection)

    @property
    def ids(self) -> Ids:
        source = topics.states(self.source.admin, [self.topic])[self.topic].id
        return Ids("source", source, self.ground.id_of(self.topic))

    def copied(self) -> list[Seen]:
        """What a ``read_committed`` reader of the target finds, read without the product."""
        return [record for _, record in read(self.cluster.bootstrap, self.topic, 0)]

    def produced(self) -> list[Seen]:
        """The same of the source."""
        return [record for _, record in read(self.source.bootstrap, self.topic, 0)]

    def produce(self, *records: Rec) -> None:
        self.source.produce(self.topic, records)

    def source_end(self) -> int:
        at = TopicPartition(self.topic, 0)
        return offsets.last_stable(self.source.admin, [at])[at]

    def target_end(self) -> int:
        at = TopicPartition(self.topic, 0)
        return offsets.high_watermarks(self.cluster.admin, [at])[at]

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
                session.commit(position, self.copied_by(engine, chunk))
                left = OffsetRange(chunk.range.until, left.until)
                yield chunk

    def copied_by(self, engine: CopyEngine, chunk: Chunk) -> Receipt:
        return self.receipt(chunk, engine.name, engine.digest_kind)
