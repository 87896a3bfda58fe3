"""A topic of numbered events at given times, and which of them were copied."""

from __future__ import annotations

from datetime import datetime

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.checker import read
from tests.support.clusters import Brokers


def produce(cluster: Brokers, topic: str, times: list[datetime]) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config={"retention.ms": "-1"})])[topic].result()
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number, time in enumerate(times):
        producer.produce(
            topic, key=str(number), value=f"event {number}", partition=0, timestamp=int(time.timestamp() * 1000)
        )
    assert producer.flush(30) == 0


def keys(cluster: Brokers, topic: str) -> list[int]:
    """The keys of the copied records, in the target's order."""
    return [int(record.key or b"-1") for _, record in read(cluster.bootstrap, topic, 0)]
