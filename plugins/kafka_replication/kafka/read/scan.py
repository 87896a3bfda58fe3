"""Records, events and errors that a consumer gives of a partition, and their meaning."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from kafka_replication.kafka.client.clients import raise_if_shut_out
from kafka_replication.kafka.diagnosis.error_table import words
from kafka_replication.kafka.diagnosis.translate import Asked, translate
from kafka_replication.model.errors import GapFound, Refused
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.model.rights import Operation
from kafka_replication.sinks.port import Record

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


def consume(reader: Consumer, at: TopicPartition, position: int) -> list[Message]:
    """The events that have arrived, at most about BATCH. Returns when the first one is there; `consume` alone waits for
    BATCH events.

    An event of another partition, from an earlier assignment of this consumer, comes before those of this one, and is
    dropped.
    """
    events = arrived(reader, at, position)
    ours = CLIENT, (at.topic, at.partition)
    first = next((number for number, event in enumerate(events) if place_of(event) in ours), len(events))
    return events[first:]


def arrived(reader: Consumer, at: TopicPartition, position: int) -> list[Message]:
    """The same of any partition. An error of the client is named as one at ``at``."""
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
