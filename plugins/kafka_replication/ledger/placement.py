"""Where a chunk's records are on the target, and how far a source partition reaches there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_replication.model.errors import LedgerUnreadable
from kafka_replication.model.offsets import MAX_OFFSET, Coverage, OffsetRange
from kafka_replication.model.partitioning import PartitionedBy

UPGRADE = "upgrade this installation: a newer version wrote it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The records of one chunk that lie in one target partition. ``digest`` is theirs, in the order of their offsets.

    No other record lies at ``offsets``.
    """

    partition: int
    offsets: Coverage
    count: int
    digest: str

    @property
    def first(self) -> int:
        return self.offsets.ranges[0].from_

    @property
    def until(self) -> int:
        return self.offsets.ranges[-1].until


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Consecutive records that we wrote to one target partition. ``first`` and ``last`` are inclusive offsets."""

    partition: int
    first: int
    last: int
    count: int
    digest: str

    @property
    def part(self) -> Part:
        offsets = Coverage((OffsetRange(self.first, self.last + 1),))
        return Part(partition=self.partition, offsets=offsets, count=self.count, digest=self.digest)


@dataclass(frozen=True, slots=True)
class KafkaSegments:
    """Where a chunk is on a Kafka target, in source order. Empty if the chunk wrote no record."""

    segments: tuple[Segment, ...] = ()


def ends_of(parts: Iterable[Part]) -> dict[int, int]:
    """One past the highest offset of these parts in each target partition."""
    ends = dict[int, int]()
    for part in parts:
        ends[part.partition] = max(part.until, ends.get(part.partition, 0))
    return ends


@dataclass(frozen=True, slots=True)
class KafkaPartitions:
    """Where a chunk is on a Kafka target that has records of others between ours: in which partitions, at which exact
    offsets, and what chose them. In the order of the partitions.
    """

    by: PartitionedBy
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class UnknownPlacement:
    """A placement of a ``kind`` that this version does not know. ``content`` is kept unchanged."""

    kind: str
    content: Mapping[str, Any] = field(hash=False)


Placement = KafkaSegments | KafkaPartitions | UnknownPlacement


@dataclass(frozen=True, slots=True)
class Spread:
    """How far the records of one source partition reach in each partition of the target topic.

    ``ends`` has one past our highest offset in each of them, 0 without a record.
    """

    by: PartitionedBy
    ends: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.ends) != self.by.partitions or any(not 0 <= end <= MAX_OFFSET for end in self.ends):
            raise ValueError(f"not the ends of {self.by.partitions} partitions: {self.ends}")

    def with_(self, by: PartitionedBy, ends: Mapping[int, int]) -> Spread:
        """The same after records were written by ``by`` up to ``ends``, by partition."""
        before = (*self.ends, *(0 for _ in range(by.partitions - len(self.ends))))
        return Spread(by, tuple(max(end, ends.get(number, 0)) for number, end in enumerate(before)))

    @classmethod
    def nothing(cls, by: PartitionedBy) -> Spread:
        return cls(by, (0,) * by.partitions)


def parts_of(placement: Placement, what: str) -> tuple[Part, ...]:
    """Raises LedgerUnreadable, which names ``what``, for a kind of placement that this version does not know."""
    match placement:
        case KafkaPartitions(parts=parts):
            return parts
        case KafkaSegments(segments):
            return tuple(segment.part for segment in segments)
        case UnknownPlacement(kind):
            raise LedgerUnreadable(f"{what} has the placement kind {kind!r}, which this version does not know", UPGRADE)
