"""The one bounded reader: ranges of one partition, each to its end, with a stall clock."""

from __future__ import annotations

import time
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, Message

from kafka_replication.kafka import clients
from kafka_replication.kafka.scan import assign, consume, headers_of, offset_of, raise_read_error
from kafka_replication.model.errors import Stalled
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.verification.audit import Seen
from kafka_replication.verification.digest import Fingerprint
from kafka_replication.verification.digests import Digest

NEAR = 10_000  # offsets that are cheaper to read over than to seek past


class BoundedReader:
    """Reads ranges of one partition; goes on without assigning again where the next range follows the last one."""

    def __init__(self, consumer: Consumer, at: TopicPartition, stall: float = 60.0) -> None:
        self._consumer, self._at, self._stall = consumer, at, stall
        self._pending: list[Message] = []  # arrived, newest first
        self._reached: int | None = None  # everything visible below it has arrived or was read
        self._done = 0  # where the last range ended: what lies before it can only be read after assigning again

    def read(self, wanted: OffsetRange) -> Iterator[Message]:
        """The ``read_committed`` records in ``wanted``. Ends when the position reaches its end, never on an empty poll.

        Raises Stalled (where the range ends above the last stable offset, too), GapFound, Refused, Unreachable.
        """
        if not wanted.span:
            return
        self._go_to(wanted)
        heard = time.monotonic()
        while True:
            while self._pending:
                offset = offset_of(self._pending[-1])
                if offset >= wanted.until:
                    return
                message = self._pending.pop()
                if offset >= wanted.from_:
                    yield message
            if self._reached is not None and self._reached >= wanted.until:
                return
            if self._fetch():
                heard = time.monotonic()
            elif time.monotonic() - heard > self._stall:
                raise Stalled(
                    f"{self._at}: nothing arrived for {self._stall:.0f} s in {wanted}",
                    "check the brokers, and whether a transaction stays open there (last stable offset)",
                )

    def _go_to(self, wanted: OffsetRange) -> None:
        near = self._reached is not None and self._done <= wanted.from_ <= self._reached + NEAR
        if not near:
            assign(self._consumer, self._at, wanted.from_)
            self._pending, self._reached = [], None
        self._done = wanted.until

    def _fetch(self) -> bool:
        """Take in what has arrived; True where something had."""
        arrived = consume(self._consumer, self._at, self._reached or 0)
        kept = []
        for message in arrived:
            error = message.error()
            if error is None:
                kept.append(message)
                self._reached = offset_of(message) + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                self._reached = max(self._reached or 0, offset_of(message))
            else:
                raise_read_error(error, self._at, self._reached or 0)
        self._pending = kept[::-1]
        return bool(arrived)


def records(consumer: Consumer, at: TopicPartition, wanted: OffsetRange, stall: float = 60.0) -> Iterator[Message]:
    """The records of one range."""
    return BoundedReader(consumer, at, stall).read(wanted)


def first_record(config: clients.ClientConfig, group: str, at: TopicPartition, wanted: OffsetRange) -> int | None:
    """The offset of the first record in ``wanted`` that a ``read_committed`` reader finds."""
    consumer = clients.consumer(config, group)
    try:
        return next((offset_of(message) for message in records(consumer, at, wanted)), None)
    finally:
        consumer.close()


class Cursor:
    """A bounded reader with a ``read_committed`` consumer of its own."""

    def __init__(self, config: clients.ClientConfig, group: str, at: TopicPartition, stall: float) -> None:
        self._consumer = clients.consumer(config, group)
        self._reader = BoundedReader(self._consumer, at, stall)
        self.records = 0  # how many `seen` gave out

    def close(self) -> None:
        self._consumer.close()

    def read(self, wanted: OffsetRange) -> Iterator[Message]:
        """The records in ``wanted``, as `BoundedReader.read`."""
        return self._reader.read(wanted)

    def seen(self, wanted: OffsetRange, total: Digest | None = None) -> Iterator[Seen]:
        """The records in ``wanted``, each by its own digest; all of them are added to ``total`` as well."""
        for message in self.read(wanted):
            self.records += 1
            fields = message.timestamp()[1], message.key(), message.value(), headers_of(message)
            if total is not None:
                total.add(*fields)
            one = Fingerprint()
            one.add(*fields)
            yield Seen(offset_of(message), one.hash.digest())
