"""The world of a check of a ledger: a replication of its own, writers, and the ledger under test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from kafka_replication.config import Copy, Replication
from kafka_replication.ledger.entries import Entry, Gap, Ids, Position, Receipt, Verified
from kafka_replication.ledger.placement import KafkaSegments, Segment
from kafka_replication.ledger.port import Ledger, TransactionPort
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.runtime.deadline import NEVER, Deadline
from tests.conformance.ground import Ground, opened

IDS = Ids("SRC", "s", "t")
TIME = "2030-01-31T06:00:00.000Z"
COPY = Copy.model_validate({"transaction_timeout": 60, "stall_timeout": 20})


@dataclass
class World:
    """One replication on a ground."""

    ground: Ground
    name: str = field(default_factory=lambda: f"ledger-{uuid.uuid4().hex[:8]}")

    def ledger(self, deadline: Deadline = NEVER) -> Ledger:
        """A new object, which has read nothing yet."""
        return opened(self.ground, self.name, deadline=deadline, settings=COPY).ledger

    def replication(self) -> Replication:
        return Replication.model_validate(
            {
                "name": self.name,
                "source": {"connection": "source"},
                "target": {"connection": "target"},
                "topics": {"include": ["orders"]},
            }
        )

    def key(self, partition: int = 0, name: str | None = None) -> PartitionKey:
        return PartitionKey(name or self.name, TopicPartition("orders", partition), "orders")

    def neighbour(self, partition: int) -> PartitionKey:
        """Another replication's key in the same ledger partition as our key of ``partition``."""
        keys = (self.key(number, f"{self.name}-other") for number in range(10_000))
        return next(key for key in keys if key.ledger_partition == self.key(partition).ledger_partition)

    @contextmanager
    def transaction(self, who: str = "writer") -> Iterator[TransactionPort]:
        """Open while the body runs; the body commits, or it is aborted."""
        target = opened(self.ground, self.name, settings=COPY)
        with closing(target.writer(f"{self.name}/{who}", who)) as writer:
            writer.fence()
            writer.begin()
            yield writer

    def write(self, *entries: tuple[PartitionKey, Entry]) -> None:
        """Commit these entries together."""
        ledger = self.ledger()
        with self.transaction() as transaction:
            for key, entry in entries:
                ledger.write(transaction, key, entry)
            transaction.commit()

    def put(self, topic: str, partition: int, key: bytes, value: bytes) -> None:
        """Commit what nobody of ours would write."""
        self.ground.put(topic, partition, key, value)


def position(next_offset: int, generation: int = 1) -> Position:
    return Position(generation=generation, ids=IDS, start=0, next_offset=next_offset)


def verified(until: int, generation: int = 1) -> Verified:
    return Verified(
        generation=generation, coverage=Coverage.of([OffsetRange(0, until)]), level="digest", run_id="run", time=TIME
    )


def gap(from_: int, until: int, generation: int = 1) -> Gap:
    return Gap(
        generation=generation,
        kind="retention",
        range=OffsetRange(from_, until),
        reason="gone",
        approved_by="somebody",
        ids=IDS,
        run_id="run",
        time=TIME,
    )


def receipt(from_: int, until: int, generation: int = 1) -> Receipt:
    count = until - from_
    segment = Segment(partition=0, first=from_, last=until - 1, count=count, digest="0" * 32)
    return Receipt(
        generation=generation,
        range=OffsetRange(from_, until),
        count=count,
        bytes=count,
        digest="0" * 32,
        digest_kind="xxh3_128/1",
        engine="record/1",
        placement=KafkaSegments((segment,)),
        ids=IDS,
        run_id="run",
        time=TIME,
    )
