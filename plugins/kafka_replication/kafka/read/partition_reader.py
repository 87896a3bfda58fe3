"""The one reader of a partition with a consumer: where it has come to, where that ends, and when it stalls."""

from __future__ import annotations

from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as ClientPartition

from kafka_replication.kafka.client.pace import Pace
from kafka_replication.kafka.read.scan import (
    consume,
    is_left_over,
    is_unreadable,
    offset_of,
    raise_read_error,
    wait_until_idle,
)
from kafka_replication.model.errors import Stalled
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.runtime.stall_clock import StallClock

NEAR = 10_000  # up to so many offsets it is cheaper to read on than to seek


class PartitionReader:
    """Most callers read the `records` of ranges: it does not assign again if the next range follows
    soon after the last one.

    A loop that cannot afford a generator does itself what `records` does: it calls `assign`, takes events from
    ``pending``, calls `arrive` if there are none, and asks `passed` about an event that is no record.
    """

    def __init__(self, consumer: Consumer, at: TopicPartition, stall: float = 60.0, limit: int | None = None) -> None:
        """``stall`` in seconds, ``limit`` in bytes a second; None is no limit."""
        self.consumer, self.at, self._stall, self._pace = consumer, at, stall, Pace(limit)
        self.clock = StallClock(stall)  # of events that arrive
        self.pending: list[Message] = []  # events that have arrived, newest first
        self._start: int | None = None  # where reading began; None before that, and after an error
        self._position = 0  # every visible record below this offset has arrived
        self._done = 0  # the end of the last range: reading before it needs a new assignment
        self._stopped: Message | None = None  # the event for an unreadable batch, behind all that has arrived

    def assign(self, offset: int, leader_epoch: int | None = None) -> None:
        """Read from ``offset``. With a stored leader epoch the broker detects a log that was truncated since then
        (KIP-320).
        """
        start = ClientPartition(self.at.topic, self.at.partition, offset)
        if leader_epoch is not None and leader_epoch >= 0:
            start = ClientPartition(self.at.topic, self.at.partition, offset, leader_epoch=leader_epoch)
        self.consumer.assign([start])
        self.pending.clear()
        self._start, self._position, self._stopped = offset, offset, None

    def check_not_truncated(self, offset: int, leader_epoch: int) -> None:
        """Ask whether the log still has what lies before ``offset``, whose record before it is of this leader epoch.
        Call `assign` afterwards. Raises Refused if an unclean election cut it off, Stalled.
        """
        self.assign(offset, leader_epoch)
        self.clock.moved()
        while not self.arrive(offset):
            if self.clock.is_over():
                raise Stalled(f"{self.at}: nothing arrived for {self._stall:.0f} s at {offset}", "check the brokers")
        first = self.pending[-1]
        if first.error() is not None:
            self.passed(first, offset)
        self.come_to_rest()

    def arrive(self, position: int) -> bool:
        """Wait for events, when none is pending. Returns False if none has arrived for a moment."""
        self.pending = consume(self.consumer, self.at, position)[::-1]
        if self.pending:
            self.clock.moved()
        return bool(self.pending)

    def passed(self, event: Message, position: int) -> int | None:
        """The position behind an event that is no record: the end of the partition, or the same position if the event
        is about an earlier assignment. None for a batch that cannot be read: the consumer is at rest then, and gives
        nothing of use until it is assigned anew. Raises the error of any other event.
        """
        error = event.error()
        assert error is not None
        if error.code() == KafkaError._PARTITION_EOF:
            return max(position, offset_of(event))
        if position == self._start and is_left_over(event, position):
            return position
        if not is_unreadable(event):
            self._start = None
            raise_read_error(self.consumer, error, self.at, position)
        wait_until_idle(self.consumer, event, self.pending[::-1])
        self.pending.clear()
        return None

    def come_to_rest(self) -> None:
        """Drop what is pending. A batch that cannot be read may be among that, behind the range."""
        arrived = self.pending[::-1]
        self.pending.clear()
        met = next((number for number, event in enumerate(arrived) if is_unreadable(event)), None)
        if met is not None:
            wait_until_idle(self.consumer, arrived[met], arrived[met + 1 :])

    def records(self, wanted: OffsetRange, *, trusting: bool = False) -> Iterator[Message]:
        """The ``read_committed`` records in ``wanted``. Ends when the position reaches its end, never on an empty poll.

        A batch that cannot be read is an error, even if its header says that it lies behind ``wanted``: the header may
        be damaged. A ``trusting`` caller finds that out by other means.
        Raises Stalled (also if the range ends above the last stable offset), GapFound, Refused, Unreachable.
        """
        if not wanted.span:
            return
        if self._start is None or not self._done <= wanted.from_ <= self._position + NEAR:
            self.assign(wanted.from_)
        self._done = wanted.until
        self.clock.moved()
        while True:
            while self.pending:
                offset = offset_of(self.pending[-1])
                if offset >= wanted.until:
                    return
                message = self.pending.pop()
                if offset >= wanted.from_:
                    yield message
            if self._position >= wanted.until:
                return
            if self._stopped is not None:
                self._pass_over(self._stopped, wanted, trusting=trusting)
            elif not self._fetch() and self.clock.is_over():
                raise Stalled(
                    f"{self.at}: nothing arrived for {self._stall:.0f} s in {wanted}",
                    "check the brokers, and whether a transaction stays open there (last stable offset)",
                )

    def _pass_over(self, event: Message, wanted: OffsetRange, *, trusting: bool) -> None:
        """Go on behind a batch that cannot be read, and that does not lie in ``wanted``. Raises Refused."""
        if self._position < wanted.from_:  # it was met on the way
            self.assign(wanted.from_)
            return
        error = event.error()
        assert error is not None
        if not trusting or offset_of(event) < wanted.until:
            raise_read_error(self.consumer, error, self.at, self._position)
        self.assign(wanted.until)

    def _fetch(self) -> bool:
        """Wait for events, and keep the records of them. Returns False if none has arrived for a moment."""
        arrived = self.arrive(self._position)
        pending, position, kept = self.pending, self._position, list[Message]()
        while pending:
            message = pending.pop()
            if message.error() is None:
                kept.append(message)
                position = message.offset() + 1  # type: ignore[operator]  # None only for messages not yet sent
            elif (passed := self.passed(message, position)) is None:
                self._stopped = message
            else:
                position = passed
        self.pending, self._position = kept[::-1], position
        self._pace.spend(sum(map(len, kept)))  # values alone: a call for each key would cost more than it tells
        self._pace.wait()
        return arrived
