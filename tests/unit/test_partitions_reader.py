"""What the reader of several partitions makes of events, in any order."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, Message

from kafka_replication.kafka.ledger_reader import PartitionsReader
from kafka_replication.model.errors import GapFound, Refused, ReplicationError, Stalled
from kafka_replication.model.offsets import OffsetRange, TopicPartition

FIRST, SECOND = TopicPartition("ledger", 0), TopicPartition("ledger", 1)
END, LOST, CORRUPTED = KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET, KafkaError._BAD_MSG


class Scripted:
    """A consumer with these events, in batches of one."""

    def __init__(self, *events: Message) -> None:
        self.events, self.assigned = list(events), list[list[tuple[str, int, int]]]()

    def assign(self, places: list[Any]) -> None:
        self.assigned.append([(place.topic, place.partition, place.offset) for place in places])

    def poll(self, _: float) -> Message | None:
        return self.events.pop(0) if self.events else None

    def consume(self, *_: Any) -> list[Message]:
        return []


class AtOnce(Scripted):
    """The same, all at once."""

    def consume(self, *_: Any) -> list[Message]:
        events, self.events = self.events, []
        return events


def event(at: TopicPartition, offset: int, code: int | None = None) -> Message:
    error = (
        None if code is None else KafkaError(code, "no place: Broker: Offset out of range" if code == LOST else None)
    )
    return Message(topic=at.topic, partition=at.partition, offset=offset, value=b"", error=error)


def read(consumer: Scripted, first: OffsetRange, second: OffsetRange) -> list[tuple[int, int]]:
    reader = PartitionsReader(cast(Consumer, consumer), {FIRST: first, SECOND: second}, stall=0.2)
    return [(cast(int, message.partition()), cast(int, message.offset())) for message in reader.records()]


@pytest.mark.parametrize("consumer", [Scripted, AtOnce])
def test_both_ranges_are_read_by_one_assignment_to_their_ends(consumer: type[Scripted]) -> None:
    """An end in a log that ends with a marker is told by an event; what lies behind a range is dropped."""
    events = (
        event(SECOND, 5),
        event(FIRST, 0),
        event(FIRST, 2),
        event(SECOND, 6),
        event(FIRST, 3),
        event(SECOND, 9, END),
    )
    asked = consumer(*events, event(FIRST, 4))
    assert read(asked, OffsetRange(0, 3), OffsetRange(5, 9)) == [(1, 5), (0, 0), (0, 2), (1, 6)]
    assert asked.assigned == [[("ledger", 0, 0), ("ledger", 1, 5)]]


def test_without_offsets_to_read_nothing_is_assigned() -> None:
    consumer = Scripted()
    assert read(consumer, OffsetRange(3, 3), OffsetRange(0, 0)) == [] and consumer.assigned == []


def test_events_of_an_earlier_assignment_are_dropped() -> None:
    """Also that it lost its place elsewhere; but at its own place that is news."""
    other = TopicPartition("ledger", 7)
    before = event(other, 0), event(other, 1, LOST), event(SECOND, 8, LOST), event(FIRST, 0)
    assert read(Scripted(*before, event(SECOND, 5)), OffsetRange(0, 1), OffsetRange(5, 6)) == [(0, 0), (1, 5)]
    with pytest.raises(GapFound, match="ledger-1: offset 5 can no longer be read"):
        read(Scripted(event(FIRST, 0), event(SECOND, 5, LOST)), OffsetRange(0, 1), OffsetRange(5, 6))


def test_an_early_end_is_not_the_end_of_the_range() -> None:
    consumer = Scripted(event(FIRST, 0), event(FIRST, 1, END), event(SECOND, 1, END))
    with pytest.raises(Stalled, match=r"ledger-0: nothing arrived for 0 s in \[0, 3\)"):
        read(consumer, OffsetRange(0, 3), OffsetRange(0, 1))


@pytest.mark.parametrize("consumer", [Scripted, AtOnce])
def test_a_batch_that_cannot_be_read_is_an_error_once_the_client_is_at_rest(consumer: type[Scripted]) -> None:
    """Records of the other partition do not show that it is (`wait_until_idle`)."""
    again = [event(SECOND, 5, CORRUPTED) for _ in range(4)]
    asked = consumer(again[0], event(FIRST, 0), again[1], event(FIRST, 1), again[2], again[3], event(FIRST, 2))
    with pytest.raises(Refused, match="ledger-1: a batch at or after offset 5 is corrupted"):
        read(asked, OffsetRange(0, 3), OffsetRange(5, 9))
    if consumer is Scripted:
        assert [left.offset() for left in asked.events] == [2]


def test_an_error_of_the_client_itself_ends_reading() -> None:
    """It has no partition."""
    down = Message(error=KafkaError(KafkaError._ALL_BROKERS_DOWN))
    with pytest.raises(ReplicationError, match="ledger-0 at offset 0"):
        read(Scripted(down), OffsetRange(0, 1), OffsetRange(0, 1))
