"""Reads the ledger's topics: always all entries that are committed now, starting where the last reading ended.

Reads ranges of several partitions with one consumer at the same time: their fetches share requests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from confluent_kafka import Consumer, Message
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

from kafka_replication.kafka import clients, offsets, topics
from kafka_replication.kafka.consumer_pool import borrowed
from kafka_replication.kafka.reading import (
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
from kafka_replication.ledger.entries import POSITIONS, RECEIPTS
from kafka_replication.ledger.receipts import Receipts, offsets_to_read
from kafka_replication.ledger.view import NewestEntries, NewestEntry
from kafka_replication.model.errors import Stalled
from kafka_replication.model.offsets import (
    LEDGER_PARTITIONS,
    OffsetRange,
    PartitionKey,
    TopicPartition,
    consumer_group,
    readable,
)
from kafka_replication.runtime.deadline import Deadline, StallClock


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


ALL = range(LEDGER_PARTITIONS)
LONGEST_TRANSACTION = 960.0  # seconds: 15 minutes by the brokers' default maximum, plus a sweep
_CONSUMER = {
    "fetch.wait.max.ms": 5,  # the wait before the ends of the partitions are told
    "fetch.message.max.bytes": 1 << 20,  # most entries are dropped at once, so only the prefetched ones take memory
    "fetch.max.bytes": 4 << 20,
    "queued.max.messages.kbytes": 4 << 10,
}


class TopicReader:
    """Reads one ledger topic for one replication."""

    topic: ClassVar[str]

    def __init__(
        self,
        config: clients.ClientConfig,
        admin: AdminClient,
        replication: str,
        deadline: Deadline,
        waits: bool = True,
        patience: float = LONGEST_TRANSACTION,
    ):
        self.stall = 60.0  # seconds in which nothing of what is known to be there arrives
        self._waits, self._topic_id, self._patience = waits, "", patience
        self._config, self._admin, self._replication, self._deadline = config, admin, replication, deadline

    def _current_id(self) -> str:
        """The topic's id, or an empty text if there is none. A re-created topic is read by a new consumer."""
        seconds = self._deadline.within(topics.TIMEOUT)
        return topics.current_id(self._admin, self.topic, seconds) or ""

    def starts(self, partitions: Collection[int]) -> Mapping[int, int]:
        """The log start of each partition."""
        starts = offsets.log_starts(self._admin, self._places(partitions)) if partitions else {}
        return {place.partition: start for place, start in starts.items()}

    def ends(self, partitions: Collection[int]) -> Mapping[int, int]:
        """The end of each partition, after waiting until no open transaction hides an entry below it.

        Without that wait the last stable offset could lie below an entry that is already committed. Raises Stalled.
        A reader that does not wait gets the last stable offset.
        """
        places = self._places(partitions)
        if self._waits:
            ends = offsets.stable_ends(self._admin, places, self._deadline.within(self._patience))
        else:
            ends = offsets.last_stable(self._admin, places)
        return {place.partition: end for place, end in ends.items()}

    def ends_now(self, partitions: Collection[int]) -> Mapping[int, int]:
        """The same, without waiting: of those partitions that answer at once, and in which nothing is hidden now."""
        shown = offsets.shown_logs(self._admin, self._places(partitions))
        return {place.partition: end for place, (end, _) in shown.items()}

    def _places(self, partitions: Collection[int]) -> list[TopicPartition]:
        return [TopicPartition(self.topic, partition) for partition in sorted(partitions)]

    def read(self, ranges: Mapping[int, OffsetRange]) -> Iterator[Message]:
        """The committed records in these ranges; those of each partition in their order."""
        return self._read(ranges, clients.consumer, **_CONSUMER)

    def read_uncommitted(self, ranges: Mapping[int, OffsetRange]) -> Iterator[Message]:
        """All records in these ranges, also those of open and aborted transactions."""
        return self._read(ranges, clients.uncommitted_consumer)

    def _read(
        self, ranges: Mapping[int, OffsetRange], make: Callable[..., Consumer], **settings: Any
    ) -> Iterator[Message]:
        wanted = {TopicPartition(self.topic, number): range_ for number, range_ in ranges.items() if range_.span}
        if not wanted:
            return
        group = consumer_group(self._replication)
        with borrowed(self._config, group, make, reads=(self.topic, self._topic_id), **settings) as reader:
            yield from PartitionsReader(reader, wanted, self.stall).records()

    def _log_foreign(self, newest: NewestEntries) -> None:
        """Only the reader that waits logs them, not another one beside it."""
        if self._waits:
            newest.log_foreign(self.topic)

    def undecided(self, hidden: Mapping[TopicPartition, OffsetRange]) -> NewestEntries:
        """The entries in what is ``hidden`` of this topic: their transaction, or an earlier one, is still open."""
        newest = NewestEntries(self._replication)
        own = {at.partition: range_ for at, range_ in hidden.items() if at.topic == self.topic}
        for message in self.read_uncommitted(own):
            _add(newest, message)
        return newest


def hidden(admin: AdminClient) -> dict[TopicPartition, OffsetRange]:
    """The partitions of both topics in which a transaction is open, and what that hides."""
    all_ = [TopicPartition(topic, partition) for topic in (POSITIONS, RECEIPTS) for partition in ALL]
    stable, ends = offsets.last_stable(admin, all_), offsets.high_watermarks(admin, all_)
    return {at: OffsetRange(stable[at], ends[at]) for at in all_ if stable[at] < ends[at]}


@dataclass(frozen=True, slots=True)
class ReadEntries:
    """The part of the positions topic that was read: its newest entries, where reading ended, and the topic's id."""

    newest: NewestEntries
    ends: dict[int, int]
    topic_id: str


class PositionsReader(TopicReader):
    """Remembers the newest entries and where reading ended in each partition, and continues from there.

    The result is the same as for a new reader: compaction removes only entries that a later entry replaces, and
    tombstones stay for `delete.retention.ms`, by default a day, which is longer than a run.
    """

    topic = POSITIONS

    def __init__(
        self,
        config: clients.ClientConfig,
        admin: AdminClient,
        replication: str,
        deadline: Deadline,
        read_before: ReadEntries | None = None,
        patience: float = LONGEST_TRANSACTION,
    ):
        super().__init__(config, admin, replication, deadline, waits=read_before is None, patience=patience)
        read_before = read_before or ReadEntries(NewestEntries(replication), {}, "")
        self._newest, self._ends, self._topic_id = read_before.newest, read_before.ends, read_before.topic_id

    def read_entries(self) -> ReadEntries:
        """A copy of what was read, for another reader."""
        return ReadEntries(self._newest.copy(), dict(self._ends), self._topic_id)

    def entries(self) -> NewestEntries:
        """The entries now. They change with the next reading."""
        self.read_on(ALL)
        return self._newest

    def entry(self, partition: int, record_key: bytes) -> NewestEntry | None:
        self.read_on([partition])
        return self._newest.get(partition, record_key)

    def known(self, partition: int, record_key: bytes) -> NewestEntry | None:
        """The newest entry that was read."""
        return self._newest.get(partition, record_key)

    def read_on(
        self, partitions: Collection[int], ends_of: Callable[[Collection[int]], Mapping[int, int]] | None = None
    ) -> Collection[int]:
        """Read on in these partitions, or in those of them that have an end now. Returns which."""
        topic_id = self._current_id()
        if topic_id != self._topic_id:
            self._forget(list(self._ends))
        self._topic_id = topic_id
        ends = (ends_of or self.ends)(partitions)
        self._forget([partition for partition, end in ends.items() if self._ends.get(partition, 0) > end])
        # A log that is only ever compacted keeps its start, so that is asked for once.
        since = {**self.starts([partition for partition in ends if partition not in self._ends]), **self._ends}
        for message in self.read({partition: readable(since[partition], end) for partition, end in ends.items()}):
            _add(self._newest, message)
        self._ends |= ends
        self._log_foreign(self._newest)
        return ends.keys()

    def _forget(self, partitions: Collection[int]) -> None:
        """Read these partitions from the start again: the topic was re-created, or its log lost what was read."""
        for partition in partitions:
            self._newest.forget(partition)
            self._ends.pop(partition, None)


class ReceiptsReader(TopicReader):
    """Reads receipts from the offset that the caller needs. Remembers nothing."""

    topic = RECEIPTS

    def receipts(self, wanted: Mapping[PartitionKey, int | None]) -> Receipts:
        self._topic_id = self._current_id()
        partitions = {key.ledger_partition for key in wanted}
        return self._read_bounded(wanted, self.starts(partitions), self.ends(partitions))

    def receipts_now(self, wanted: Mapping[PartitionKey, int | None]) -> Receipts:
        """The same, of those keys whose partition need not be waited for."""
        self._topic_id = self._current_id()
        ends = self.ends_now({key.ledger_partition for key in wanted})
        there = {key: since for key, since in wanted.items() if key.ledger_partition in ends}
        return self._read_bounded(there, self.starts(ends), ends)

    def _read_bounded(
        self, wanted: Mapping[PartitionKey, int | None], starts: Mapping[int, int], ends: Mapping[int, int]
    ) -> Receipts:
        bounds = {partition: readable(starts[partition], end) for partition, end in ends.items()}
        since = offsets_to_read(wanted, {partition: there.until for partition, there in bounds.items()})
        newest = NewestEntries(self._replication)
        first = dict[int, int]()  # by partition, the smallest offset that one of its keys needs
        for key, offset in since.items():
            first[key.ledger_partition] = min(offset, first.get(key.ledger_partition, offset))
        wanted_of = {
            number: OffsetRange(max(first[number], there.from_), there.until) for number, there in bounds.items()
        }
        for message in self.read(wanted_of):
            _add(newest, message)
        self._log_foreign(newest)
        return newest.receipts(since, bounds)


def _add(newest: NewestEntries, message: Message) -> None:
    newest.add(
        message.topic() or "", message.partition() or 0, offset_of(message), message.key() or b"", message.value()
    )
