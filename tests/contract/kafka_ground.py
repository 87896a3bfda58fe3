"""Kafka as the ground of a conformance suite; what a stranger does is done without the product."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from kafka_replication.copying.sink import Record
from kafka_replication.kafka import offsets, topics
from kafka_replication.kafka.cursor import Cursor
from kafka_replication.kafka.target import KafkaTarget
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.targets.port import TargetKind
from tests.support.checker import read
from tests.support.scenario import Cluster, Rec


@dataclass
class KafkaGround:
    cluster: Cluster
    kind: TargetKind = KafkaTarget
    config: dict[str, str] = field(default_factory=dict)  # of the topics that are created

    @property
    def connection(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.cluster.bootstrap}

    def create(self, topic: str, partitions: int = 1) -> None:
        self.cluster.create(topic, partitions, config=self.config)

    def delete(self, topic: str) -> None:
        self.cluster.delete(topic)

    def limit(self, topic: str, size: int) -> None:
        self.cluster.set(topic, max_message_bytes=str(size))

    def id_of(self, topic: str) -> str:
        return topics.states(self.cluster.admin, [topic])[topic].id

    def write(self, topic: str, record: Record) -> None:
        _, timestamp, key, value, headers = record
        self.cluster.produce(topic, [Rec(key, value, tuple(headers or ()), timestamp)])

    def visible(self, topic: str, partition: int = 0) -> list[tuple[int, Record]]:
        found = read(self.cluster.bootstrap, topic, partition)
        return [(at, (at, one.timestamp, one.key, one.value, list(one.headers) or None)) for at, one in found]

    def entries(self, topic: str, partition: int = 0) -> list[bytes | None]:
        return [record[3] for _, record in self.visible(topic, partition)]

    def peek(self, topic: str) -> list[bytes | None]:
        end = offsets.last_stable(self.cluster.admin, [TopicPartition(topic, 0)])[TopicPartition(topic, 0)]
        with closing(Cursor(self.connection, "peek", TopicPartition(topic, 0), 20)) as cursor:
            return [record[3] for record in cursor.content(OffsetRange(0, end))]

    def put(self, topic: str, partition: int, key: bytes, value: bytes) -> None:
        self.cluster.produce(topic, [Rec(key, value)], partition)
