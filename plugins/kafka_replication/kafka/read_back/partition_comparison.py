"""Reads one partition on source and target, to find out what became of the records that were sent."""

from __future__ import annotations

import time
from collections.abc import Container, Iterator, Mapping
from contextlib import ExitStack, closing
from functools import cached_property

from confluent_kafka.admin import AdminClient

from kafka_replication.kafka.client import clients
from kafka_replication.kafka.metadata import offsets, topics
from kafka_replication.kafka.read.cursor import Cursor
from kafka_replication.ledger.entries import Receipt
from kafka_replication.model.errors import NotReady
from kafka_replication.model.keys import PartitionKey, consumer_group
from kafka_replication.model.offsets import OffsetRange, TopicPartition, readable
from kafka_replication.runtime.stall_clock import StallClock
from kafka_replication.verification.digests import RecordDigest
from kafka_replication.verification.matching import Seen, Sent
from kafka_replication.verification.newest import Change, NewestRecords
from kafka_replication.verification.verify import PartDigest

AT_REST = 3.0  # seconds; a log that has not grown for so long gets no more of the records that were sent
LOOK = 0.1


def target_log(admin: AdminClient, at: TopicPartition, expected: int) -> OffsetRange:
    """The readable offsets of a target partition, once it has reached ``expected`` or does not grow any more."""
    rest, end = StallClock(AT_REST), 0
    while (end := offsets.last_stable(admin, [at])[at]) < expected and not rest.is_over(-end):
        time.sleep(LOOK)
    return readable(offsets.log_starts(admin, [at])[at], end)


def check_all_shown(admin: AdminClient, topic: str, ends: Mapping[int, int]) -> None:
    """Raise NotReady if a partition of the target topic may have more than was read of it up to its entry in ``ends``.

    With fewer in-sync replicas than min.insync.replicas a leader takes records with acks=0 and acks=1, and shows them
    to nobody until the replicas are back (KIP-966). What is not shown is not lost.
    """
    needed = int(topics.config(admin, topic)["min.insync.replicas"])
    for partition in topics.descriptions(admin, [topic])[topic].partitions:
        if partition.id in ends and len(partition.isr) < needed:
            raise NotReady(
                f"{topic}-{partition.id} on the target has {len(partition.isr)} in-sync replicas of {needed}"
                " (min.insync.replicas), so it may hide records that it has: what is lost cannot be counted",
                "bring the missing replicas back; the next run goes on",
            )
    now = offsets.last_stable(admin, [TopicPartition(topic, number) for number in ends])
    for at, end in now.items():
        if end > ends[at.partition]:
            raise NotReady(f"{at} on the target has grown from {ends[at.partition]} to {end} meanwhile", "run again")


class SourceSide:
    """A `SourceReader`, and the source's half of a `BothSides`. Its consumer is made when it is first needed."""

    def __init__(self, source: clients.ClientConfig, key: PartitionKey, stall: float) -> None:
        self._source, self._key, self._stall = source, key, stall
        self._open = ExitStack()

    @cached_property
    def _reader(self) -> Cursor:
        return self._cursor(self._source, self._key.source)

    def _cursor(self, config: clients.ClientConfig, at: TopicPartition) -> Cursor:
        return self._open.enter_context(closing(Cursor(config, consumer_group(self._key.replication), at, self._stall)))

    def source_log(self) -> OffsetRange:
        return offsets.readable_log(clients.shared_admin(self._source), self._key.source)

    def source(self, wanted: OffsetRange, without: Container[int] = ()) -> Iterator[Sent]:
        return self._reader.sent(wanted, without=without)

    def source_digest(self, wanted: OffsetRange, digest: RecordDigest) -> PartDigest:
        self._reader.add_to(digest, wanted)
        return PartDigest(digest.count, digest.hexdigest())

    def written(self, receipt: Receipt, change: Change) -> NewestRecords:
        return NewestRecords.of(made for record in self._reader.copied(receipt) for made in change(record))

    def around(self, wanted: OffsetRange, unreadable: Container[int] = ()) -> Iterator[Sent]:
        return self._reader.sent(wanted, lenient=True, unreadable=unreadable)

    def close(self) -> None:
        self._open.close()


class KafkaSides(SourceSide):
    """A `BothSides` with Kafka on both."""

    def __init__(
        self, source: clients.ClientConfig, target: clients.ClientConfig, key: PartitionKey, stall: float
    ) -> None:
        super().__init__(source, key, stall)
        self._target = target

    @cached_property
    def _target_reader(self) -> Cursor:
        return self._cursor(self._target, self._key.target)

    def target_log(self, expected: int) -> OffsetRange:
        return target_log(clients.shared_admin(self._target), self._key.target, expected)

    def check_all_shown(self, until: int) -> None:
        at = self._key.target
        check_all_shown(clients.shared_admin(self._target), at.topic, {at.partition: until})

    def target(self, wanted: OffsetRange) -> Iterator[Seen]:
        return self._target_reader.seen(wanted)


def both_sides(
    source: clients.ClientConfig,
    target: clients.ClientConfig,
    key: PartitionKey,
    stall: float,
) -> closing[KafkaSides]:
    return closing(KafkaSides(source, target, key, stall))
