"""Source topics as a shop would have them: keys, headers, nulls, tombstones, transactions, several partitions."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # re-exported without saying so

A_DAY_MS = 86_400_000
Headers = list[tuple[str, str | bytes | None]]


@dataclass(frozen=True, slots=True)
class Record:
    """One record for one partition; ``timestamp`` in ms."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    _: KW_ONLY
    headers: Headers
    timestamp: int


TOPICS = {"demo.orders": 4, "demo.customers": 2, "demo.clicks": 3}


def create_topics(bootstrap: str) -> None:
    """Create what is missing of the demo's topics."""
    for name, partitions in TOPICS.items():
        create_topic(bootstrap, name, partitions)


def create_topic(bootstrap: str, name: str, partitions: int) -> None:
    """Create a topic, unless it exists."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        try:
            future.result(30)
        except KafkaException as e:
            if e.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def records(seed: int, count: int) -> Iterator[Record]:
    """``count`` records over all topics: orders with headers, customers with tombstones, clicks without keys."""
    rng = random.Random(seed)
    yesterday = (
        int(time.time() * 1000) - A_DAY_MS
    )  # a copy that lost timestamps would show; older ones retention may delete
    for number in range(count):
        timestamp = yesterday + number * 7
        user = rng.randrange(20_000)
        match number % 10:
            case 0:
                gone = rng.random() < 0.2
                value = (
                    None
                    if gone
                    else json.dumps(
                        {"id": user, "name": f"customer {user}", "tier": rng.choice(["a", "b", None])}
                    ).encode()
                )
                yield Record("demo.customers", user % 2, b"c%05d" % user, value, headers=[], timestamp=timestamp)
            case 1 | 2 | 3:
                headers: Headers = [("session", b"%016x" % rng.getrandbits(64)), ("referrer", None)]
                yield Record("demo.clicks", number % 3, None, rng.randbytes(120), headers=headers, timestamp=timestamp)
            case _:
                order = {
                    "id": number,
                    "user": user,
                    "cents": rng.randrange(100, 90_000),
                    "items": [rng.randrange(9_999) for _ in range(12)],
                }
                headers = [("source", b"shop")] if number % 4 == 0 else []
                yield Record(
                    "demo.orders",
                    user % 4,
                    b"o%09d" % number,
                    json.dumps(order).encode(),
                    headers=headers,
                    timestamp=timestamp,
                )


def produce(bootstrap: str, seed: int, count: int) -> int:
    """Write them in transactions of 20,000, and one aborted transaction that no reader may ever see; returns
    ``count``.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": "demo-shop",
            "compression.type": "lz4",
            "linger.ms": 20,
            "log_level": 0,  # else librdkafka prints that it asks a young cluster for a producer id again
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for number, each in enumerate(records(seed, count), 1):
        _send(producer, each)
        if number % 20_000 == 0:
            producer.commit_transaction(60)
            producer.begin_transaction()
    producer.commit_transaction(60)
    producer.begin_transaction()
    for each in records(seed + 1_000, 300):
        _send(producer, each)
    producer.flush(60)
    producer.abort_transaction(60)
    return count


def _send(producer: Producer, each: Record) -> None:
    while True:
        try:
            producer.produce(
                each.topic, each.value, each.key, each.partition, timestamp=each.timestamp, headers=each.headers
            )
            return
        except BufferError:
            producer.poll(0.05)
