"""Reads a target topic, and the sources of all who write to it, to find out what became of what was sent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from kafka_replication.copying.pipeline import Pipeline
from kafka_replication.kafka import clients
from kafka_replication.kafka.both_sides import KafkaSides
from kafka_replication.kafka.cursor import Cursor
from kafka_replication.model.keys import PartitionKey, consumer_group
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.verification.audit import Seen


@dataclass(slots=True, kw_only=True)
class KafkaTopicSides:
    """A `TopicSides` that has the consumers of one source partition and of one target partition open at a time."""

    replication: str
    topic: str
    source: clients.ClientConfig
    target_: clients.ClientConfig
    stall: float  # seconds
    pipeline: Pipeline | None
    _key: PartitionKey | None = field(default=None, init=False)
    _sides: KafkaSides | None = field(default=None, init=False)
    _at: TopicPartition | None = field(default=None, init=False)
    _cursor: Cursor | None = field(default=None, init=False)

    def of(self, key: PartitionKey) -> KafkaSides:
        if self._sides is None or self._key != key:
            self._close_source()
            self._key, self._sides = key, KafkaSides(self.source, self.target_, key, self.stall, self.pipeline)
        return self._sides

    def target(self, partition: int, wanted: OffsetRange) -> Iterator[Seen]:
        at = TopicPartition(self.topic, partition)
        if self._cursor is None or self._at != at:
            self._close_target()
            self._at, self._cursor = at, Cursor(self.target_, consumer_group(self.replication), at, self.stall)
        return self._cursor.seen(wanted)

    def _close_source(self) -> None:
        if self._sides is not None:
            self._sides.close()
        self._sides = None

    def _close_target(self) -> None:
        if self._cursor is not None:
            self._cursor.close()
        self._cursor = None

    def close(self) -> None:
        self._close_source()
        self._close_target()


@contextmanager
def topic_sides(
    replication: str,
    topic: str,
    source: clients.ClientConfig,
    target: clients.ClientConfig,
    stall: float,
    pipeline: Pipeline | None,
) -> Iterator[KafkaTopicSides]:
    sides = KafkaTopicSides(
        replication=replication, topic=topic, source=source, target_=target, stall=stall, pipeline=pipeline
    )
    try:
        yield sides
    finally:
        sides.close()
