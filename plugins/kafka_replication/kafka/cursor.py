"""Reading one partition forwards, stretch after stretch, without starting anew where the next one follows."""

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


class Cursor:
    """A ``read_committed`` consumer of one partition."""

    def __init__(self, config: clients.ClientConfig, group: str, at: TopicPartition, stall: float) -> None:
        self._consumer: Consumer = clients.consumer(config, group)
        self._at, self._stall = at, stall
        self._pending: list[Message] = []  # arrived, reversed
        self._reached: int | None = None  # everything visible below it has arrived or was read
        self.records = 0  # how many `seen` gave out
        self._done = 0  # where the last stretch ended: nothing before it can be had again without starting anew

    def close(self) -> None:
        self._consumer.close()

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

    def read(self, wanted: OffsetRange) -> Iterator[Message]:
        """The records in ``wanted``, which must end at or below the last stable offset. Raises Stalled, GapFound."""
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
        """Take in what has arrived; whether something had."""
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
