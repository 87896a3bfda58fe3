"""The places of a chunk's records on the target, and the reach of a source partition there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Discriminator, PlainSerializer, PlainValidator, Tag

from kafka_replication.ledger.values import STRICT, JsonCoverage, Number, Proof
from kafka_replication.model.choices import KEEP, PartitionedBy
from kafka_replication.model.errors import LedgerUnreadable
from kafka_replication.model.offsets import MAX_OFFSET, Coverage, OffsetRange

UPGRADE = "upgrade this installation: a newer version wrote it"


def _not_empty(offsets: Coverage) -> Coverage:
    if not offsets:
        raise ValueError("a part without offsets")
    return offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The records of one chunk that lie in one target partition. ``digest`` is theirs, in the order of their offsets.

    No other record lies at ``offsets``.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    partition: Number
    offsets: Annotated[JsonCoverage, AfterValidator(_not_empty)]
    count: Number
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

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    partition: Number
    first: Number
    last: Number
    count: Number
    digest: str

    @property
    def part(self) -> Part:
        offsets = Coverage((OffsetRange(self.first, self.last + 1),))
        return Part(partition=self.partition, offsets=offsets, count=self.count, digest=self.digest)


@dataclass(frozen=True, slots=True)
class KafkaSegments:
    """The place of a chunk on a Kafka target, in source order. Empty if the chunk wrote no record."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    segments: tuple[Segment, ...] = ()
    kind: Literal["kafka-segments"] = field(default="kafka-segments", repr=False)


def ends_of(parts: Iterable[Part]) -> dict[int, int]:
    """One past the highest offset of these parts in each target partition."""
    ends = dict[int, int]()
    for part in parts:
        ends[part.partition] = max(part.until, ends.get(part.partition, 0))
    return ends


@dataclass(frozen=True, slots=True)
class KafkaPartitions:
    """The place of a chunk on a Kafka target that has records of others between ours: in which partitions, at which
    exact offsets, and what chose them. In the order of the partitions.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    by: PartitionedBy
    parts: tuple[Part, ...] = ()
    kind: Literal["kafka-partitions"] = field(default="kafka-partitions", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestByKey:
    """The place of a chunk on a target that keeps the newest record of each key: at its keys. Of a chunk with records.

    ``partition`` is the source's, ``first`` and ``last`` are the offsets of its first and last record. ``keys`` is the
    number of different keys, ``digest`` that of the newest record of each, by offset.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    partition: Number
    first: Number
    last: Number
    keys: Number
    digest: str
    kind: Literal["newest-by-key"] = field(default="newest-by-key", repr=False)

    @property
    def offsets(self) -> OffsetRange:
        return OffsetRange(self.first, self.last + 1)


@dataclass(frozen=True, slots=True)
class UnknownPlacement:
    """A placement of a ``kind`` that this version does not know. ``content`` is kept unchanged."""

    kind: str
    content: Mapping[str, Any] = field(hash=False)


Placement = KafkaSegments | KafkaPartitions | NewestByKey | UnknownPlacement


def _kind(content: Any) -> str | None:
    """The kind of placement of this JSON: a known one is read strictly, another one is kept unchanged."""
    match content:
        case {"kind": ("kafka-segments" | "kafka-partitions" | "newest-by-key") as kind}:
            return str(kind)
        case {"kind": str()}:
            return "unknown"
        case KafkaSegments() | KafkaPartitions() | NewestByKey():
            return content.kind
        case UnknownPlacement():
            return "unknown"
    return None


def _kept(content: Any) -> UnknownPlacement:
    return UnknownPlacement(content["kind"], {name: value for name, value in content.items() if name != "kind"})


def _as_kept(placement: UnknownPlacement) -> dict[str, Any]:
    return {**placement.content, "kind": placement.kind}


JsonPlacement = Annotated[
    Annotated[KafkaSegments, Tag("kafka-segments")]
    | Annotated[KafkaPartitions, Tag("kafka-partitions")]
    | Annotated[NewestByKey, Tag("newest-by-key")]
    | Annotated[UnknownPlacement, PlainValidator(_kept), PlainSerializer(_as_kept), Tag("unknown")],
    Discriminator(_kind),
]


@dataclass(frozen=True, slots=True)
class SpreadEnds:
    """The reach of one source partition's records in each partition of the target topic.

    ``ends`` has one past our highest offset in each of them, 0 without a record.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    by: PartitionedBy
    ends: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.ends) != self.by.partitions or any(not 0 <= end <= MAX_OFFSET for end in self.ends):
            raise ValueError(f"not the ends of {self.by.partitions} partitions: {self.ends}")

    def with_(self, by: PartitionedBy, ends: Mapping[int, int]) -> SpreadEnds:
        """The same after records were written by ``by`` up to ``ends``, by partition."""
        before = (*self.ends, *(0 for _ in range(by.partitions - len(self.ends))))
        return SpreadEnds(by, tuple(max(end, ends.get(number, 0)) for number, end in enumerate(before)))

    @classmethod
    def nothing(cls, by: PartitionedBy) -> SpreadEnds:
        return cls(by, (0,) * by.partitions)


def parts_of(placement: Placement, what: str) -> tuple[Part, ...]:
    """The parts of the target's partitions that have its records; none where they are found by their keys.

    Raises LedgerUnreadable, which names ``what``, for a kind of placement that this version does not know.
    """
    match placement:
        case KafkaPartitions(parts=parts):
            return parts
        case KafkaSegments(segments):
            return tuple(segment.part for segment in segments)
        case NewestByKey():
            return ()
        case UnknownPlacement(kind):
            raise LedgerUnreadable(f"{what} has the placement kind {kind!r}, which this version does not know", UPGRADE)


def end_of(placement: Placement) -> int:
    """One past the highest offset of a chunk that has its target partition to itself; 0 for another one, and if there
    are no records, or the target has no offsets.
    """
    match placement:
        case KafkaSegments(segments):
            return max((segment.last + 1 for segment in segments), default=0)
        case KafkaPartitions(by, parts) if by.name == KEEP:
            return max((part.until for part in parts), default=0)
        case NewestByKey(last=last):
            return last + 1
    return 0


def proof_of(placement: Placement) -> Proof:
    """The way to prove that records are there of which one session wrote all or none."""
    return Proof.BY_KEY if isinstance(placement, NewestByKey) else Proof.BY_TRANSACTION


def newest_of(placement: Placement, what: str) -> NewestByKey:
    """The placement, which has to be at keys. Raises LedgerUnreadable, which names ``what``, for another one."""
    if not isinstance(placement, NewestByKey):
        raise LedgerUnreadable(f"{what} does not say at which keys its records are", UPGRADE)
    return placement


def chooser_of(placement: Placement) -> PartitionedBy | None:
    """The partitioning by which the target partitions were chosen; None if all have the number of the source's."""
    match placement:
        case KafkaPartitions(by=by) if by.name != KEEP:
            return by
    return None


def described(placement: Placement, topic: str, numbers: Sequence[int]) -> list[str]:
    """The place of each of several records, for messages. ``numbers`` says how many records of the target ``topic``
    each of them became, in their order; without any it has no place, and the text is empty.
    """
    places = _described(placement, topic, sum(numbers))
    ends = list(accumulate(numbers))
    return [places[end - number] if number else "" for end, number in zip(ends, numbers, strict=True)]


def _described(placement: Placement, topic: str, count: int) -> Sequence[str]:
    """The place of each record of the target, as exactly as the placement alone says it."""
    match placement:
        case NewestByKey():
            return [f"{topic} (by its key)"] * count
        case KafkaPartitions(by=by):
            return [f"{topic} (by {by.name})"] * count
    parts = parts_of(placement, f"the entry of records in {topic}")
    ranges = [(f"{topic}-{part.partition}", range_) for part in parts for range_ in part.offsets]
    if sum(range_.span for _, range_ in ranges) == count:
        return [f"{at} offset {offset}" for at, range_ in ranges for offset in range(range_.from_, range_.until)]
    return [
        ", ".join(f"{at} offsets {range_}" for at, range_ in ranges)
    ] * count  # some of these offsets have no record
