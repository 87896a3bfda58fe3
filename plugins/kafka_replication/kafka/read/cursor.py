"""The only bounded reader: reads ranges of one partition to their end, with a stall clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import ExitStack, closing
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message

from kafka_replication.kafka.client import clients
from kafka_replication.kafka.client.consumer_pool import borrowed
from kafka_replication.kafka.client.pace import Pace, paced
from kafka_replication.kafka.read.scan import (
    assign,
    consume,
    is_left_over,
    is_unreadable,
    offset_of,
    raise_read_error,
    record_of,
    settle,
)
from kafka_replication.model.errors import Stalled
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.sinks.port import Record, RefusedAt
from kafka_replication.verification.audit import Seen
from kafka_replication.verification.digest import BatchDigest, Fingerprint
from kafka_replication.verification.digests import Digest

# A broker answers a fetch that finds nothing after its longest wait, by default 100 ms.
_MOSTLY_EMPTY: dict[str, Any] = {"fetch.wait.max.ms": 5}
NEAR = 10_000  # up to so many offsets it is cheaper to read on than to seek


class BoundedReader:
    """Reads ranges of one partition. It does not assign again if the next range follows soon after the last one."""

    def __init__(self, consumer: Consumer, at: TopicPartition, stall: float = 60.0, limit: int | None = None) -> None:
        self._consumer, self._at, self._stall, self._pace = consumer, at, stall, Pace(limit)
        self._pending: list[Message] = []  # arrived, newest first
        self._reached: int | None = None  # every visible record below this offset has arrived
        self._done = 0  # the end of the last range: reading before it needs a new assignment
        self._stopped: Message | None = None  # the event for an unreadable batch, behind all that has arrived
        self._assigned: int | None = None  # where reading began

    def read(self, wanted: OffsetRange, unreadable: Container[int] | None = None) -> Iterator[Message]:
        """The ``read_committed`` records in ``wanted``. Ends when the position reaches its end, never on an empty poll.

        A batch that cannot be read is passed over if all of its offsets in ``wanted`` are known to be ``unreadable``.
        Without that it is an error, even if its header says that it lies behind ``wanted``: the header may be damaged.
        Raises Stalled (also if the range ends above the last stable offset), GapFound, Refused, Unreachable.
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
            if self._stopped is not None:
                self._pass_over(self._stopped, wanted, unreadable)
            elif self._fetch():
                heard = time.monotonic()
            elif time.monotonic() - heard > self._stall:
                raise Stalled(
                    f"{self._at}: nothing arrived for {self._stall:.0f} s in {wanted}",
                    "check the brokers, and whether a transaction stays open there (last stable offset)",
                )

    def _go_to(self, wanted: OffsetRange) -> None:
        near = self._reached is not None and self._done <= wanted.from_ <= self._reached + NEAR
        if not near:
            self._assign(wanted.from_)
        self._done = wanted.until

    def _assign(self, offset: int) -> None:
        assign(self._consumer, self._at, offset)
        self._pending, self._reached, self._stopped, self._assigned = [], None, None, offset

    def _pass_over(self, event: Message, wanted: OffsetRange, unreadable: Container[int] | None) -> None:
        """Go on behind a batch that cannot be read. Raises Refused."""
        if self._reached is not None and self._reached < wanted.from_:  # it was met on the way
            self._assign(wanted.from_)
            return
        error, position = event.error(), max(wanted.from_, self._reached or 0)
        assert error is not None
        known: Container[int] = () if unreadable is None else unreadable
        first = position if position in known else max(position, offset_of(event))
        if unreadable is None or (first < wanted.until and first not in known):
            raise_read_error(self._consumer, error, self._at, position)
        behind = next((at for at in range(first, wanted.until) if at not in known), wanted.until)
        self._assign(behind)
        self._reached = behind

    def _is_left_over(self, event: Message) -> bool:
        """Whether it is about an earlier assignment, which met a batch that cannot be read, behind its range."""
        start = self._assigned
        return start is not None and self._reached in (None, start) and is_left_over(event, start)

    def _fetch(self) -> bool:
        """Store the events that have arrived. Returns True if there were some."""
        arrived = consume(self._consumer, self._at, self._reached or 0)
        kept = []
        for number, message in enumerate(arrived):
            error = message.error()
            if error is None:
                kept.append(message)
                self._reached = offset_of(message) + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                self._reached = max(self._reached or 0, offset_of(message))
            elif self._is_left_over(message):
                continue
            elif is_unreadable(message):
                self._stopped = message
                settle(self._consumer, message, arrived[number + 1 :])
                break
            else:
                raise_read_error(self._consumer, error, self._at, self._reached or 0)
        self._pending = kept[::-1]
        self._pace.spend(sum(map(len, kept)))  # values alone: a call for each key would cost more than it tells
        self._pace.wait()
        return bool(arrived)


def records(consumer: Consumer, at: TopicPartition, wanted: OffsetRange, stall: float = 60.0) -> Iterator[Message]:
    """The records of one range."""
    return BoundedReader(consumer, at, stall).read(wanted)


def first_record(config: clients.ClientConfig, group: str, at: TopicPartition, wanted: OffsetRange) -> int | None:
    """The offset of the first record in ``wanted`` that a ``read_committed`` reader sees, or None."""
    if not wanted.span:
        return None
    with borrowed(config, group, **_MOSTLY_EMPTY) as consumer:
        return next((offset_of(message) for message in records(consumer, at, wanted)), None)


class Cursor:
    """A bounded reader with a ``read_committed`` consumer."""

    def __init__(
        self, config: clients.ClientConfig, group: str, at: TopicPartition, stall: float, limit: int | None = None
    ) -> None:
        self._config, self._at, self._stall, self._limit = config, at, stall, limit
        self._stack = ExitStack()
        self._reader = BoundedReader(self._stack.enter_context(borrowed(paced(config, limit), group)), at, stall, limit)
        self.records = 0  # how many `seen` returned

    def close(self) -> None:
        self._stack.close()

    def add_to(self, total: Digest, wanted: OffsetRange) -> None:
        """Add what is in ``wanted``."""
        if isinstance(total, BatchDigest):
            self._add_batches(wanted, total)
            self.records += total.count
        else:
            for _ in self.seen(wanted, total):
                pass

    def _add_batches(self, wanted: OffsetRange, total: BatchDigest) -> None:
        from kafka_replication.kafka.batches.reading_back import BatchCursor  # only who needs it loads it

        with closing(BatchCursor(self._config, self._at, self._stall, self._limit)) as batches:
            batches.read([wanted], total)

    def read(self, wanted: OffsetRange, unreadable: Container[int] | None = None) -> Iterator[Message]:
        """The records in ``wanted``, as `BoundedReader.read`."""
        return self._reader.read(wanted, unreadable)

    def seen(
        self,
        wanted: OffsetRange,
        total: Digest | None = None,
        change: Callable[[Record], Iterable[Record]] | None = None,
        without: Container[int] | None = None,
        *,
        lenient: bool = False,
        unreadable: Container[int] | None = None,
    ) -> Iterator[Seen]:
        """The offset and digest of each record in ``wanted``, or of what ``change`` makes of it. Each of these is also
        added to ``total``, unless that is a digest of batches: it gets those that are there. The offsets ``without``
        are left out, and if ``lenient`` records that cannot be copied. Those ``without`` may be in batches that cannot
        be read, or if given the ``unreadable`` ones.
        """
        if isinstance(total, BatchDigest):
            self._add_batches(wanted, total)
            total = None
        for message in self.read(wanted, without if unreadable is None else unreadable):
            self.records += 1
            if without is not None and offset_of(message) in without:
                continue
            try:
                record = record_of(message)
                made = change(record) if change else (record,)
            except (RefusedAt, SystemError):
                if lenient:
                    continue
                raise
            for offset, *fields in made:
                if total is not None:
                    total.add(*fields)
                fingerprint = Fingerprint()
                fingerprint.add(*fields)
                yield Seen(offset, fingerprint.hash.digest())
