"""The offsets of a batch of the source that nobody can read: its checksum is wrong, or it cannot be decompressed.

librdkafka 2.16 (measured) gives an event with the batch's first offset, behind all records before it. What the same
consumer gives later means nothing: it may take the last bytes of the batch for the next one and go on at an offset that
it finds there, or fetch the batch again and again. So what follows the event is not used, and the end of the batch is
searched by assigning anew: what a consumer gives first is true.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, Message
from confluent_kafka.admin import AdminClient

from kafka_replication.kafka import clients, offsets
from kafka_replication.kafka.reading import PartitionReader, is_end, is_unreadable, offset_of
from kafka_replication.model.errors import Stalled
from kafka_replication.model.offsets import OffsetRange, TopicPartition

# By default the client waits 100 ms before its second connection, and 500 ms after a failed decompression. One batch is
# enough.
_EAGER: dict[str, Any] = {
    "reconnect.backoff.ms": 10,
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
