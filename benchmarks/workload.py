"""What the tables of ``make bench`` copy, with which engines, how much of it and how often."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from dataclasses import dataclass, replace

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # re-exported without saying so

ENGINES = ("auto", "record", "batch")  # values of copy.engine; each gets a row wherever engines are compared
SCALE = float(os.environ.get("SCALE", "1"))  # of the records of every table, and of its partitions where it has many
REPEATS = int(os.environ.get("REPEATS", "3"))  # turns, after those that warm the brokers up
PARTITIONS = 4
LEAST = 100  # records; fewer are no measurement of anything


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The records of one topic: how many, of how many bytes each (values), in batches of at most how many bytes, and of
    at most how many records.
    """

    topic: str
    records: int
    size: int
    batch: int = 1_000_000
    each: int = 100_000

    def __str__(self) -> str:
        batches = "1 MB" if self.batch == 1_000_000 else f"{self.batch >> 10} KiB"
        if self.each < LEAST:
            batches = f"{self.each} records" if self.each > 1 else "one record"
        return f"{self.records:,} x {self.size:,} B in batches of {batches}"

    @property
    def megabytes(self) -> float:
        return self.records * self.size / 1e6

    def scaled(self, by: float) -> Shape:
        return replace(self, records=max(LEAST, round(self.records * by)))


SHAPES = (
    Shape(topic="large", records=1_000_000, size=1024),
    Shape(topic="small", records=1_000_000, size=1024, batch=16 << 10),  # the default of Java's producer
    Shape(topic="short", records=5_000_000, size=100),
)
FEW = (  # as producers without `linger.ms` write
    Shape(topic="single", records=400_000, size=1024, each=1),
    Shape(topic="four", records=600_000, size=1024, each=4),
)


def create(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(120)


def fill(bootstrap: str, shape: Shape) -> None:
    """Values of JSON-like text that lz4 compresses about as well as real events."""
    create(bootstrap, shape.topic)
    rng = random.Random(7)
    words = [str(rng.getrandbits(40)) for _ in range(400)]
    pool = [
        (f'{{"id":{i},"body":"' + " ".join(rng.choices(words, k=100))).encode()[: shape.size].ljust(shape.size)
        for i in range(2000)
    ]
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": "lz4",
            "linger.ms": 50,
            "batch.size": shape.batch,
            "batch.num.messages": shape.each,
            "enable.idempotence": True,
        }
    )
    records = ((b"k%08d" % number, pool[number % 2000]) for number in range(shape.records))
    send(producer, shape.topic, PARTITIONS, records)


def send(producer: Producer, topic: str, partitions: int, records: Iterable[tuple[bytes, bytes]]) -> None:
    """Send keys and values to the partitions in turn, and wait until all are acknowledged."""
    for number, (key, value) in enumerate(records):
        while True:
            try:
                producer.produce(topic, value=value, key=key, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush()
