"""Writes the history of a ledger for `ledger_history`: what past runs of every partition would have left behind."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple, cast

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # re-exported without saying so

from kafka_replication.config import Replication
from kafka_replication.kafka import clients, topics
from kafka_replication.kafka.ledger import KafkaLedger
from kafka_replication.kafka.transactions import TransactionalProducer
from kafka_replication.ledger.entries import Ids, Position, Receipt, Verified
from kafka_replication.ledger.placement import KafkaSegments, Segment
from kafka_replication.ledger.port import TransactionPort
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.model.times import now
from kafka_replication.runtime.deadline import NEVER

TOPICS = int(os.environ.get("TOPICS", "100"))
WIDTH, DEPTH = 10, 1_000  # partitions of a topic; DEPTH offsets of each were copied before
SEGMENT_SECONDS = 65  # segment.ms of the positions topic, and a little more


def replication(size: int) -> Replication:
    return Replication.model_validate(
        {
            "name": f"history-{size}",
            "source": {"connection": "source"},
            "target": {"connection": "target"},
            "topics": {"include": ["^t"], "rename": f"h{size}.{{topic}}"},
        }
    )


def keys(settings: Replication) -> list[PartitionKey]:
    names = [f"t{number:03}" for number in range(TOPICS)]
    return [
        PartitionKey(settings.name, TopicPartition(name, partition), settings.target_topic(name))
        for name in names
        for partition in range(WIDTH)
    ]


def source_topics() -> list[str]:
    return sorted({key.source.topic for key in keys(replication(0))})


def create(bootstrap: str, names: list[str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, WIDTH, 1) for name in names]).values():
        future.result(60)


def produce(bootstrap: str, count: int, names: Sequence[str]) -> None:
    """``count`` small records to every partition of these topics."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    for name in names:
        for partition in range(WIDTH):
            for _ in range(count):
                producer.produce(name, value=b"x", partition=partition)
        producer.flush()


def write_history(source: str, target: str, settings: Replication, size: int) -> None:
    """As ``size / 1000`` runs of every partition would have written it, each with one chunk and its verification."""
    admins = clients.admin({"bootstrap.servers": source}), clients.admin({"bootstrap.servers": target})
    config, mine = {"bootstrap.servers": target}, keys(settings)
    ids = ids_of(*admins, mine)
    ledger = KafkaLedger(config, admins[1], settings.name)
    ledger.ensure(settings)
    runs = size // len(mine)
    start = DEPTH - runs
    opened = [sent for key in mine for sent in Sent.by(ledger, key, position(ids[key], start, start))]
    copied = [sent for key in mine for sent in Sent.by(ledger, key, *one_run(key, ids[key], start))]
    with closing(TransactionalProducer("history", "history", config, settings.copying, NEVER)) as transaction:
        transaction.fence()
        transaction.begin()
        for sent in opened:
            transaction.send(*sent)
        for until in range(start + 1, DEPTH + 1):
            for sent in copied:
                transaction.send(*sent.of(until))
            transaction.commit()
            transaction.begin()
        transaction.commit()
        ends = ledger.receipt_ends()
        time.sleep(SEGMENT_SECONDS if runs else 0)  # the last run was a while ago: what it wrote is in a closed segment
        transaction.begin()
        for key in mine:  # as the last verification leaves it: no unverified receipt lies below the end
            ledger.write(transaction, key, verified(start, DEPTH, ends[key.ledger_partition]))
        transaction.commit()


FROM, UNTIL = 987_654_321_001, 987_654_321_002  # stand for a run's offsets in what `Sent` was encoded with


def one_run(key: PartitionKey, ids: Ids, start: int) -> tuple[Position, Receipt, Verified]:
    return position(ids, start, UNTIL), receipt(key, ids, FROM, UNTIL, f"run-{UNTIL}"), verified(start, UNTIL, 0)


class Sent(NamedTuple):
    """One ledger record; encoding millions of them one by one would take minutes."""

    topic: str
    partition: int
    key: bytes
    value: bytes

    @classmethod
    def by(cls, ledger: KafkaLedger, key: PartitionKey, *entries: Position | Receipt | Verified) -> list[Sent]:
        """What the ledger writes for these entries."""
        recorder = Recorder()
        for entry in entries:
            ledger.write(cast(TransactionPort, recorder), key, entry)
        return recorder.sent

    def of(self, until: int) -> Sent:
        """Of the run that copied the offset before ``until``."""
        numbers = (str(FROM).encode(), b"%d" % (until - 1)), (str(UNTIL).encode(), b"%d" % until)
        key, value = self.key, self.value
        for placeholder, number in numbers:
            key, value = key.replace(placeholder, number), value.replace(placeholder, number)
        return Sent(self.topic, self.partition, key, value)


class Recorder:
    """Takes what a transaction would send."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []

    def send(self, topic: str, partition: int, key: bytes, value: bytes) -> None:
        self.sent.append(Sent(topic, partition, key, value))


def position(ids: Ids, start: int, until: int) -> Position:
    return Position(
        generation=1,
        ids=ids,
        start=start,
        next_offset=until,
        coverage=Coverage.of([OffsetRange(start, until)]),
        target_end=until,  # of each partition, source and target have the same offsets
        receipts_from=0,
    )


def verified(start: int, until: int, receipts_from: int) -> Verified:
    return Verified(
        generation=1,
        coverage=Coverage.of([OffsetRange(start, until)]),
        level="digest",
        run_id="run",
        time=now(),
        receipts_from=receipts_from,
    )


def receipt(key: PartitionKey, ids: Ids, from_: int, until: int, run_id: str) -> Receipt:
    digest, count, partition = "0123456789abcdef" * 2, until - from_, key.target.partition
    return Receipt(
        generation=1,
        range=OffsetRange(from_, until),
        count=count,
        bytes=count,
        digest=digest,
        digest_kind="xxh3_128/1",
        engine="record/1",
        placement=KafkaSegments(
            (Segment(partition=partition, first=from_, last=until - 1, count=count, digest=digest),)
        ),
        ids=ids,
        run_id=run_id,
        time=now(),
    )


def ids_of(source: AdminClient, target: AdminClient, mine: list[PartitionKey]) -> dict[PartitionKey, Ids]:
    cluster = topics.cluster_id(source)
    sources = topics.states(source, {key.source.topic for key in mine})
    targets = topics.states(target, {key.target_topic for key in mine})
    return {key: Ids(cluster, sources[key.source.topic].id, targets[key.target_topic].id) for key in mine}
