"""Reads ranges of several partitions with one consumer at the same time: their fetches share requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NoReturn

from confluent_kafka import Consumer, Message
from confluent_kafka import TopicPartition as ClientPartition

from kafka_replication.kafka.read.scan import (
    CLIENT,
    arrived,
    is_end,
    is_left_over,
    is_unreadable,
    offset_of,
    place_of,
    raise_read_error,
    wait_until_idle,
)
from kafka_replication.model.errors import Stalled
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.runtime.stall_clock import StallClock


class PartitionsReader:
    """Reads one range of each partition, once. The records of a partition come in order, between those of others."""

    def __init__(self, consumer: Consumer, ranges: Mapping[TopicPartition, OffsetRange], stall: float = 60.0) -> None:
        """``stall`` in seconds."""
        self._consumer, self._stall = consumer, stall
        wanted = {(at.topic, at.partition): range_ for at, range_ in ranges.items() if range_.span}
        self._wanted = wanted  # what is not read to its end yet
        self._positions = {place: range_.from_ for place, range_ in wanted.items()}

    def records(self) -> Iterator[Message]:
        """The records in the ranges. Ends when every position has reached the end of its range, never on an empty poll.

        Raises Stalled (also if a range ends above the last stable offset), GapFound, Refused, Unreachable.
        """
        if not self._wanted:
            return
        self._consumer.assign([ClientPartition(*place, offset) for place, offset in self._positions.items()])
        clock = StallClock(self._stall)
        clock.moved()
        while self._wanted:
            place, range_ = next(iter(self._wanted.items()))
            events = arrived(self._consumer, TopicPartition(*place), self._positions[place])
            if any(place_of(event) in self._wanted for event in events):
                clock.moved()
            elif clock.is_over():
                raise Stalled(
                    f"{TopicPartition(*place)}: nothing arrived for {self._stall:.0f} s in {range_}",
                    "check the brokers, and whether a transaction stays open there (last stable offset)",
                )
            for number, event in enumerate(events):
                if self._take(event, events[number + 1 :] if event.error() is not None else []):
                    yield event

    def _take(self, event: Message, behind: list[Message]) -> bool:
        """True if the event is a record of its partition's range. ``behind`` are the events that came after an error.

        One of a partition whose range was read, or that belongs to an earlier assignment, is dropped.
        """
        place = place_of(event)
        if place == CLIENT:
            self._raise(event, *next(iter(self._positions.items())))
        if (range_ := self._wanted.get(place)) is None:
            return False
        offset, is_record = offset_of(event), event.error() is None
        self._positions[place] = position = offset + 1 if is_record else self._passed(event, behind)
        if position >= range_.until:
            del self._wanted[place]
        return is_record and range_.from_ <= offset < range_.until

    def _passed(self, event: Message, behind: list[Message]) -> int:
        """The position behind an event that is no record. Raises the error of any other event than an end."""
        place = place_of(event)
        position = self._positions[place]
        if is_end(event):
            return max(position, offset_of(event))
        if position == self._wanted[place].from_ and is_left_over(event, position):
            return position
        if is_unreadable(event):
            wait_until_idle(self._consumer, event, behind)
        return self._raise(event, place, position)

    def _raise(self, event: Message, place: tuple[str, int], position: int) -> NoReturn:
        error = event.error()
        assert error is not None
        raise_read_error(self._consumer, error, TopicPartition(*place), position)
