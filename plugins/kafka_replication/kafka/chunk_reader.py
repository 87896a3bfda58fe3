"""Reads one chunk's records from the consumer: decodes them, counts them and adds them to the digest.

The offsets of a batch of the source that nobody can read: its checksum is wrong, or it cannot be decompressed.

librdkafka 2.16 (measured) gives an event with the batch's first offset, behind all records before it. What the same
consumer gives later means nothing: it may take the last bytes of the batch for the next one and go on at an offset that
it finds there, or fetch the batch again and again. So what follows the event is not used, and the end of the batch is
searched by assigning anew: what a consumer gives first is true.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, cast

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, Message
from confluent_kafka.admin import AdminClient

from kafka_replication.config import Copy
from kafka_replication.copying.engine import CHUNK_BYTES, OnlyAsStored
from kafka_replication.copying.pipeline import PipelineWriter
from kafka_replication.copying.sink import Record, RecordWriter, RefusedAt, Screen
from kafka_replication.kafka import clients, offsets
from kafka_replication.kafka.consumer_pool import Pace
from kafka_replication.kafka.reading import (
    UNREADABLE,
    PartitionReader,
    WithoutHeaders,
    headers_of,
    is_end,
    is_unreadable,
    offset_of,
)
from kafka_replication.ledger.offset_map import WrittenOffsets
from kafka_replication.model.choices import Failure, FailureKind
from kafka_replication.model.errors import Refused, Stalled
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.runtime.deadline import NEVER, Deadline
from kafka_replication.verification.digests import Fingerprint, Headers

# Bytes that are given to the writer at a time: fewer if it takes long, so that a chunk ends soon after its time.
LEAST_STEP, MOST_STEP = 128 << 10, 1 << 20
LONG = 0.25  # seconds


@dataclass(slots=True, kw_only=True)
class ChunkReader:
    """Reads ``left`` from its start until the chunk is full, the range ends, or a batch cannot be read: then
    ``stopped`` says why, and the source gives nothing of use until it is assigned anew.
    """

    source: PartitionReader  # assigned; what it has pending at the end is for the next chunk
    left: OffsetRange
    most_records: int
    settings: Copy
    pace: Pace
    deadline: Deadline = NEVER
    hands_over: bool = False  # another engine copies records that the client would change
    # As `HeaderNames.wrong`. None: it is not known whether the client cuts header names.
    wrong_names: Callable[[int, Headers], str | None] | None = None
    at_once: int | None = None  # records that are given to the writer at a time, at most
    at: TopicPartition = field(init=False)
    position: int = field(init=False)  # the next source offset
    seen: Fingerprint = field(init=False, default_factory=Fingerprint)
    offsets: WrittenOffsets = field(init=False, default_factory=WrittenOffsets)  # of what was given to the writer
    last: Message | None = field(init=False, default=None)  # the last record read
    stopped: str = field(init=False, default="")

    def __post_init__(self) -> None:
        self.at, self.position = self.source.at, self.left.from_

    def read(self, writer: RecordWriter | PipelineWriter) -> None:
        """Pass the records to the writer in batches. Raises RefusedAt for a record that cannot be copied unchanged,
        GapFound, Stalled, OutOfTime, NoProgress, and the errors of the writer.
        """
        started, full, step = time.monotonic(), False, LEAST_STEP
        self.source.clock.moved()
        while not full and self.position < self.left.until:
            # A chunk must move the position: committing an empty one would restart the stall clock for ever.
            # What the pace asks for is waited here, unless the chunk's time ends before: then before the next chunk.
            until = time.monotonic() - started + self.pace.seconds
            if until > self.settings.chunk_seconds and self.position > self.left.from_:
                return
            self.pace.wait()
            self.deadline.check_stopped(f"{self.at}: reading")
            if not self.source.pending and not self.source.arrive(self.position):
                self.deadline.check(f"{self.at}: waiting for the source at offset {self.position} of {self.left}")
                if self.source.clock.is_over():
                    raise Stalled(
                        f"{self.at}: the source sent nothing for {self.settings.stall_timeout} s at offset"
                        f" {self.position} of {self.left}",
                        "check the source's brokers; the next run continues after the last commit. If the source skips"
                        " gigabytes of aborted records, raise copy.stall_timeout",
                    )
            before, began = self.seen.bytes, time.monotonic()
            records, full = self._take(before + self.pace.step(step), writer)
            writer.write(records)
            self.offsets.add_records(records)
            full = full or writer.full
            if records:
                self.source.clock.moved()  # the source cannot be blamed for the time that the target took
                took = time.monotonic() - began
                step = max(LEAST_STEP, step // 2) if took > LONG else min(MOST_STEP, 2 * step)
                self.pace.spend(self.seen.bytes - before)

    def _take(self, step: int, writer: RecordWriter | PipelineWriter) -> tuple[list[Record], bool]:
        """Pending records until the chunk has ``step`` bytes, and whether the chunk is full or the range has ended.

        Most of the processor time of reading is spent here: hence local names, and only one Python call for an
        ordinary record, which adds it to the digest.
        """
        until, seen, pending, position, last = self.left.until, self.seen, self.source.pending, self.position, self.last
        most_bytes, add = min(step, CHUNK_BYTES), self.seen.add
        most_records = min(self.most_records, seen.count + (self.at_once or self.most_records))
        records: list[Record] = []
        append, screen, wrong_names = records.append, writer.screen, self.wrong_names
        full = False
        try:
            while pending and not full:
                if seen.count >= most_records or seen.bytes >= most_bytes:
                    full = seen.count >= self.most_records or seen.bytes >= CHUNK_BYTES
                    break
                message = pending.pop()
                error = message.error()
                offset: int = message.offset()  # type: ignore[assignment]  # None only for messages not yet sent
                if error is not None:
                    if (passed := self.source.passed(message, position)) is None:
                        self.stopped, full = UNREADABLE[error.code()], True
                        break
                    position = min(passed, until)
                    continue
                if not position <= offset < until:
                    pending.append(message)
                    position, full = self._beyond(offset, position), True
                    break
                kind, timestamp = message.timestamp()
                timeless = kind == TIMESTAMP_NOT_AVAILABLE
                unfaithful = (TIMELESS if timeless else _EARLY.format(timestamp)) if timestamp <= 0 else None
                try:
                    headers = headers_of(message)
                except SystemError:
                    headers, message = None, cast(Message, WithoutHeaders(message))
                    unfaithful = unfaithful or _NOT_UTF_8
                if headers and wrong_names is not None and (wrong := wrong_names(offset, headers)):
                    headers, unfaithful = None, unfaithful or wrong
                key, value = message.key(), message.value()
                record = (offset, timestamp, key, value, headers)
                if (unfaithful or screen is not None) and (failure := _failure(record, unfaithful, screen)):
                    if unfaithful and self.hands_over:
                        pending.append(message)
                        full = self._before_odd(failure, position)
                    else:
                        self._set_aside(writer, record, failure)
                        last, position, full = message, offset + 1, writer.full
                    continue
                add(timestamp, key, value, headers)
                append(record)
                last, position = message, offset + 1
        finally:
            self.position, self.last = position, last
        return records, full

    def _beyond(self, offset: int, position: int) -> int:
        """The end of the range, as a later record has arrived. Raises Refused for a record before ``position``."""
        if offset < position:
            raise Refused(f"{self.at}: the source went back from {position} to {offset}", "check the source's log")
        return self.left.until

    def _before_odd(self, failure: Failure, position: int) -> bool:
        """End the chunk before a record that the client would change. Raises OnlyAsStored if the chunk begins there."""
        if position == self.left.from_:
            raise OnlyAsStored(failure.offset + 1, f"the record at offset {failure.offset}: {failure.reason}")
        return True

    def _set_aside(self, writer: RecordWriter | PipelineWriter, record: Record, failure: Failure) -> None:
        """Raises RefusedAt if nothing is set aside."""
        if writer.screen is not None:
            writer.set_aside(record, failure)
            return
        raise RefusedAt(
            f"{self.at}: the record at offset {failure.offset} (partition {self.at.partition}) cannot be copied"
            f" unchanged: {failure.reason}",
            _OLD if failure.reason == TIMELESS else _CHANGED,
            failure.offset,
            kind=failure.kind,
            error=failure.error,
            key=record[2],
        )


_CHANGED = (
    "copy it unchanged, with copy.engine: batch; docs/engines.md says what that needs. Or remove the record at the"
    " source, or exclude the topic, or choose failures.policy quarantine or skip: nothing after it is copied"
)
_OLD = (
    "choose failures.policy quarantine or skip; or let a client write the records of this topic again, which gives them"
    " a time; or exclude the topic: nothing after the record is copied"
)


def _failure(record: Record, unfaithful: str | None, screen: Screen | None) -> Failure | None:
    """The failure of a record that the client would change, which ``unfaithful`` says, or that the writer refuses; None
    if it can be copied.
    """
    if unfaithful:
        return Failure(record[0], FailureKind.UNFAITHFUL, unfaithful, "Unfaithful")
    return screen(record) if screen else None


_EARLY = "its timestamp is {}, which the client would replace by the current time"
TIMELESS = "it has no timestamp (message format 0, of brokers before Kafka 0.10), and would get the current time"
_NOT_UTF_8 = "it has a header whose name is not UTF-8"


# By default the client waits 500 ms after a failed decompression. One batch is enough.
_EAGER: dict[str, Any] = {
    "fetch.error.backoff.ms": 10,
    "fetch.wait.max.ms": 5,
    "fetch.message.max.bytes": 64 << 10,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondLook:
    """Reads a partition again, with new connections, where a batch could not be read."""

    source: clients.ClientConfig
    admin: AdminClient
    group: str
    at: TopicPartition
    stall: float

    def unreadable(self, position: int) -> OffsetRange | None:
        """The offsets from the batch that stops a reader at ``position`` to the next record that can be read.

        Which of them have a record, and which are of control or aborted records or were compacted, nobody can know.
        None if the batch can be read now. Raises Stalled, GapFound, Refused, Unreachable.
        """
        with closing(clients.consumer(self.source, self.group, **_EAGER)) as consumer:
            event = self._first(consumer, position)
        if not is_unreadable(event):
            return None
        with closing(clients.uncommitted_consumer(self.source, self.group, **_EAGER)) as consumer:
            # The first batch from ``position`` on that cannot be read, also if it was aborted. Its header may be
            # damaged, so its offsets are found by reading.
            nothing_below = offset_of(event)
            for event in self._events(consumer, position):
                if event.error() is not None:
                    break
                position = offset_of(event) + 1
            # Behind the place where the ``read_committed`` reader was stopped: that batch can be read now, and visible
            # records may lie before this one.
            if not is_unreadable(event) or offset_of(event) > nothing_below:
                return None
            first, end = offset_of(event), offsets.high_watermarks(self.admin, [self.at])[self.at]
            behind = self._behind(consumer, first, OffsetRange(position, max(position + 1, end)))
            return OffsetRange(max(position, first) if first < behind else position, behind)

    def _behind(self, consumer: Consumer, first: int, within: OffsetRange) -> int:
        """The first offset behind the batch at ``first`` where there is a record, or another such batch; the end of
        ``within`` if there is none.
        """

        def is_in(offset: int) -> bool:
            event = self._first(consumer, offset)
            return is_unreadable(event) and offset_of(event) == first

        inside, step = within.from_, 1
        while inside + step < within.until and is_in(inside + step):
            inside, step = inside + step, 2 * step
        outside = min(inside + step, within.until)
        while outside - inside > 1:
            middle = (inside + outside) // 2
            inside, outside = (middle, outside) if is_in(middle) else (inside, middle)
        if outside == within.until:
            return outside
        event = self._first(consumer, outside)
        next_ = offset_of(event)
        # A header that is damaged may name any offset. A record, or the end of what a new leader gives, is there.
        if next_ < outside or (is_unreadable(event) and next_ > within.until):
            return outside
        return min(next_, within.until)

    def _first(self, consumer: Consumer, offset: int) -> Message:
        """The first event at or after the offset: a record, an unreadable batch, or the end of the partition."""
        return next(self._events(consumer, offset))

    def _events(self, consumer: Consumer, offset: int) -> Iterator[Message]:
        """The events from an offset on, up to the first one that is no record."""
        reader = PartitionReader(consumer, self.at, self.stall)
        reader.assign(offset)
        while True:
            if not reader.arrive(offset) and reader.clock.is_over():
                raise Stalled(
                    f"{self.at}: nothing arrived for {self.stall:.0f} s at offset {offset}", "check the brokers"
                )
            while reader.pending:
                event = reader.pending.pop()
                if event.error() is None:
                    yield event
                elif reader.passed(event, offset) is None or is_end(event):
                    yield event
                    return
