"""Says where the records of a chunk lie: all in one target partition, or in several, or between records of others.

Records of several source partitions interleave in one target partition. So a receipt has the exact offsets then, and
every record gets a delivery callback.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError

from kafka_replication.copying.sink import Record
from kafka_replication.kafka.cursor import RUN_AGAIN
from kafka_replication.ledger.placement import KafkaPartitions, KafkaSegments, Part, Segment
from kafka_replication.model.errors import ReplicationError, Stalled, TargetLost
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.verification.digests import Fingerprint

if TYPE_CHECKING:
    from kafka_replication.kafka.partitioner import Partitioner  # only a worker that needs it loads it

UNKNOWN = -1  # no target offset acknowledged yet
# So that a receipt stays below 1 MB, the usual max.message.bytes: a range takes at most 42 bytes.
MOST_RANGES = 16_384


def check_end(at: TopicPartition, end: int, ours: int) -> None:
    """Raise TargetLost if a target partition that ``end``s here does not have all of our records, which were there up
    to ``ours``.
    """
    if end < ours:
        raise TargetLost(
            f"{at} on the target ends at {end}, but our records were there up to {ours}: the target lost data",
            RUN_AGAIN,
        )


@dataclass(slots=True)
class Ends:
    """The places of one chunk that has its target partition to itself: from the first record to the last one, which are
    acknowledged by themselves.
    """

    partition: int
    lies: Callable[[int, int, int], OffsetRange]  # by the number of records, and the acknowledged offsets of its ends
    _first: int = UNKNOWN
    _last: int = UNKNOWN
    each = False

    def partitions(self, batch: Sequence[Record]) -> Iterable[int]:  # noqa: ARG002  # all go to one
        return repeat(self.partition)

    def acknowledged(self, partition: int, offset: int) -> None:  # noqa: ARG002
        self._first = offset if self._first == UNKNOWN else min(self._first, offset)
        self._last = max(self._last, offset)

    def check(self, sent: int) -> None: ...

    def placement(self, sent: int, digest: str) -> KafkaSegments:
        if not sent:
            return KafkaSegments()
        between = self.lies(sent, self._first, self._last)
        segment = Segment(
            partition=self.partition, first=between.from_, last=between.until - 1, count=sent, digest=digest
        )
        return KafkaSegments((segment,))


@dataclass(slots=True)
class _Growing:
    """The records that were sent to one target partition, and their places as far as they are acknowledged."""

    seen: Fingerprint = field(default_factory=Fingerprint)
    acknowledged: int = 0
    ranges: list[list[int]] = field(default_factory=list)
    until: int = -1  # of the last range

    def lies_at(self, offset: int) -> bool:
        """Note the offset of the next record. False if it is not above the one before: then the order is not ours."""
        self.acknowledged += 1
        if offset == self.until:
            self.ranges[-1][1] = self.until = offset + 1
            return True
        if offset < max(0, self.until):
            return False
        self.ranges.append([offset, offset + 1])
        self.until = offset + 1
        return True

    def part(self, partition: int) -> Part:
        offsets_ = Coverage(tuple(OffsetRange(*pair) for pair in self.ranges))
        return Part(partition=partition, offsets=offsets_, count=self.seen.count, digest=self.seen.hexdigest())


@dataclass(slots=True, kw_only=True)
class Offsets:
    """The places of one chunk, of which each record is acknowledged by itself."""

    key: PartitionKey
    partitioner: Partitioner
    error: Callable[[KafkaError, str], ReplicationError]  # names one of Kafka's
    ends: dict[int, int] = field(default_factory=dict)  # one past our last record before this chunk, by partition
    check_logs: Callable[[Mapping[int, int]], None] = lambda first: None  # raises if one may have lost its end
    _growing: dict[int, _Growing] = field(default_factory=dict)
    _misplaced: KafkaError | None = None  # an acknowledgement without an offset, or with one that is too low
    each = True

    def partitions(self, batch: Sequence[Record]) -> Iterator[int]:
        choose, growing = self.partitioner.choose, self._growing
        for record in batch:
            partition = choose(record)
            _, timestamp, key, value, headers = record
            if partition not in growing:
                growing[partition] = _Growing()
            growing[partition].seen.add(timestamp, key, value, headers)
            yield partition

    def acknowledged(self, partition: int, offset: int) -> None:
        if not self._growing[partition].lies_at(offset):
            self._misplaced = KafkaError(KafkaError._TIMED_OUT, f"a record was acknowledged at {offset}")

    def check(self, sent: int) -> None:
        if sum(len(growing.ranges) for growing in self._growing.values()) > MOST_RANGES:
            raise Stalled(
                f"{self.key.source}: other writers share the target topic {self.key.target_topic}: {sent} records"
                f" of a chunk lie in more than {MOST_RANGES} pieces",
                "smaller chunks are tried by themselves; lower copy.chunk_records if this stays",
            )

    def placement(self, sent: int, digest: str) -> KafkaPartitions:  # noqa: ARG002  # each part has its own
        unknown = [number for number, growing in self._growing.items() if growing.acknowledged != growing.seen.count]
        if unknown or self._misplaced:
            error = KafkaError(KafkaError._TIMED_OUT, f"not every record was acknowledged in partitions {unknown}")
            raise self.error(self._misplaced or error, "sending")
        for number, growing in self._growing.items():
            at = TopicPartition(self.key.target_topic, number)
            check_end(at, growing.ranges[0][0], self.ends.get(number, 0))  # it may have lost its end while we wrote
            self.ends[number] = growing.until
        self.check_logs({number: growing.ranges[0][0] for number, growing in self._growing.items()})
        return KafkaPartitions(
            self.partitioner.by, tuple(growing.part(number) for number, growing in sorted(self._growing.items()))
        )
