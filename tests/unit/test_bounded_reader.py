"""What a bounded reader makes of events that no broker sends on demand."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, Message

from kafka_replication.kafka.cursor import BoundedReader
from kafka_replication.model.errors import GapFound
from kafka_replication.model.offsets import OffsetRange, TopicPartition

AT = TopicPartition("events", 0)


class Scripted:
    """A consumer with these events, in batches of one, whatever is assigned."""

    def __init__(self, *events: Message) -> None:
        self.events, self.assigned = list(events), list[int]()

    def assign(self, places: list[Any]) -> None:
        self.assigned += [place.offset for place in places]

    def poll(self, _: float) -> Message | None:
        return self.events.pop(0) if self.events else None

    def consume(self, *_: Any) -> list[Message]:
        return []


def event(offset: int, code: int | None = None) -> Message:
    error = None if code is None else KafkaError(code)
    return Message(topic=AT.topic, partition=AT.partition, offset=offset, value=b"", error=error)


@pytest.mark.parametrize("lost", [7, 20])
def test_behind_an_unreadable_batch_only_its_own_place_can_be_lost(lost: int) -> None:
    """librdkafka may still say that the assignment before lost its place, at an offset that it found in the batch."""
    events = event(0), event(10, KafkaError._BAD_COMPRESSION), event(lost, KafkaError._AUTO_OFFSET_RESET), event(20)
    consumer = Scripted(*events, event(21))
    reading = BoundedReader(cast(Consumer, consumer), AT, stall=0).read(OffsetRange(0, 22), range(1, 20))
    if lost == 20:
        with pytest.raises(GapFound):
            list(reading)
    else:
        assert [message.offset() for message in reading] == [0, 20, 21]
    assert consumer.assigned == [0, 20]
