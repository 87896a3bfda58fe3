"""Records, events and errors that a consumer gives of a partition, and their meaning.

The one reader of a partition with a consumer: where it has come to, where that ends, and when it stalls.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from kafka_replication.copying.sink import Record
from kafka_replication.kafka.clients import raise_if_shut_out
from kafka_replication.kafka.connect_diagnosis import Asked, translate
from kafka_replication.kafka.consumer_pool import Pace
from kafka_replication.kafka.error_table import words
from kafka_replication.model.errors import GapFound, Refused, Stalled
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.model.rights import Operation
from kafka_replication.runtime.deadline import StallClock

BATCH = 5_000
CLIENT = ("", -1)  # the place of an event about the client itself
POLL = 0.1  # seconds to wait for a first event
AGAIN, IDLE_WAIT = 4, 10.0  # events for the same unreadable batch that show that the client stays there; most seconds
# What is wrong with a batch that cannot be read, by the client's error.
UNREADABLE = {
    KafkaError._BAD_MSG: "its checksum is wrong",
    KafkaError._BAD_COMPRESSION: "it cannot be decompressed",
}


# If a header name is not UTF-8, the client's `Message.headers` returns a broken list and sets an exception. A call from
# C detects that and raises SystemError. A call that Python 3.11+ has specialised (as in a hot loop) does not, and the
# process crashes later.
headers_of: Callable[[Message], Any] = operator.methodcaller("headers")


class Truncated(Refused):
    """The log of a partition ends below what was read of it before."""


class WithoutHeaders:
    """A message whose headers could not be read. The client must not be asked for them again: then it returns the
    broken list without an exception.
    """

    def __init__(self, message: Message) -> None:
        self._message = message

    def headers(self) -> NoReturn:
        raise SystemError("a header name is not UTF-8")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._message, name)


def raise_read_error(reader: Consumer, error: KafkaError, at: TopicPartition, position: int) -> NoReturn:
    """Raise the error that a consumer's error event means for a range that was read up to ``position``."""
    code = error.code()
    if _is(error, KafkaError.OFFSET_OUT_OF_RANGE):
        raise GapFound(
            f"{at}: offset {position} can no longer be read ({error.str()})",
            "retention or a deletion removed it: run again; the plan then names the lost offsets and how to give"
            " them up",
        )
    if _is(error, KafkaError._LOG_TRUNCATION):
        raise Truncated(
            f"{at}: the log was truncated below offset {position} after it was copied ({error.str()})",
            "find out which records were lost (unclean leader election?) before going on",
        )
    if code in UNREADABLE:
        raise Refused(
            f"{at}: a batch at or after offset {position} is corrupted ({error.str()})",
            "repair the broker's log or its replica",
        )
    raise_if_shut_out(reader)  # an event about the client says less
    raise translate(error, f"reading {at} at offset {position}", _asked(reader, at))


def _is(error: KafkaError, code: int) -> bool:
    """With our reset policy librdkafka reports these codes as another one, with its own words for the code."""
    return error.code() == code or (error.code() == KafkaError._AUTO_OFFSET_RESET and words(code) in error.str())


def _asked(reader: Consumer, at: TopicPartition) -> Asked:
    """The rights that reading needs: a client with a group id always looks up the group's coordinator."""
    settings = Asked.of(reader).settings
    group = (Operation.DESCRIBE, str(settings.get("group.id", "")))
    return Asked.of(reader, topic=(Operation.READ, at.topic), group=group)


def code_of(event: Message) -> int | None:
    """The code of the event's error; None for a record."""
    error = event.error()
    return None if error is None else error.code()


def is_end(event: Message) -> bool:
    """True if this is the event at the end of the partition."""
    return code_of(event) == KafkaError._PARTITION_EOF


def is_unreadable(event: Message) -> bool:
    """True if this is the event for a batch that cannot be read. It has the batch's first offset."""
    return code_of(event) in UNREADABLE and offset_of(event) >= 0


def is_left_over(event: Message, start: int) -> bool:
    """True if the first event since ``start`` was assigned says that an earlier assignment lost its place: librdkafka
    2.16 does not always drop that one. A truncation of the log is news whichever assignment met it.
    """
    error = event.error()
    if error is None or error.code() != KafkaError._AUTO_OFFSET_RESET or _is(error, KafkaError._LOG_TRUNCATION):
        return False
    return offset_of(event) != start


def wait_until_idle(reader: Consumer, unreadable: Message, behind: Iterable[Message]) -> None:
    """Wait until the consumer is at rest after the event for an unreadable batch; ``behind`` came after it. Only then
    it can be assigned anew, or closed.

    After a wrong checksum librdkafka 2.16 may go on at an offset that it finds in the batch (measured). If the broker
    answers that there is no such offset while the consumer is closed, closing never ends: a thread waits for a lock
    that it holds. Otherwise it fetches the batch again and again, which harms nothing.
    """
    if code_of(unreadable) != KafkaError._BAD_MSG:
        return
    waiting, met, until = list(behind)[::-1], 1, time.monotonic() + IDLE_WAIT
    while met < AGAIN and time.monotonic() < until:
        event = waiting.pop() if waiting else reader.poll(POLL)
        if event is None or place_of(event) != place_of(unreadable):
            continue
        if is_unreadable(event):
            met += 1
        elif code_of(event) != KafkaError._NOT_IMPLEMENTED:
            return


def offset_of(message: Message) -> int:
    """The offset of a record, or that of an event: the end of the partition, an unreadable batch, an unknown offset."""
    return message.offset()  # type: ignore[return-value]  # None only for messages not yet sent


def record_of(message: Message) -> Record:
    """The record as engines and audits take it. Raises SystemError for a header name that is not UTF-8."""
    return offset_of(message), message.timestamp()[1], message.key(), message.value(), headers_of(message)


def arrived(reader: Consumer, at: TopicPartition, position: int) -> list[Message]:
    """The events that have arrived, of any partition, at most about BATCH. Returns when the first one is there; the
    client's `consume` alone waits for BATCH events. An error of the client is named as one at ``at``.
    """
    try:
        first = reader.poll(POLL)
        if first is None:
            raise_if_shut_out(reader)
            return []
        return [first, *reader.consume(BATCH, 0)]
    except KafkaException as e:
        raise translate(e.args[0], f"reading {at} at offset {position}", _asked(reader, at)) from e


def place_of(message: Message) -> tuple[str, int]:
    """The topic and partition of a record or an event; those of `CLIENT` if it is about the client itself."""
    topic, partition = message.topic(), message.partition()
    return CLIENT if topic is None or partition is None else (topic, partition)


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
        """Wait for events, when none is pending. Returns False if none has arrived for a moment.

        An event of another partition, from an earlier assignment of this consumer, comes before those of this one, and
        is dropped.
        """
        events, ours = arrived(self.consumer, self.at, position), (CLIENT, (self.at.topic, self.at.partition))
        first = next((number for number, event in enumerate(events) if place_of(event) in ours), len(events))
        self.pending = events[first:][::-1]
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
