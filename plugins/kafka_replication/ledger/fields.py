"""The fields of ledger entries that are more than a number or a text: how they stand in JSON, and become a value.

What a released format uses never changes here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator

from kafka_replication.ledger.entries import FailedRecord, Ids, MappedOffset, Place, Transform
from kafka_replication.ledger.placement import (
    KafkaPartitions,
    KafkaSegments,
    Part,
    Placement,
    Segment,
    Spread,
    UnknownPlacement,
)
from kafka_replication.model.offsets import Coverage, OffsetRange
from kafka_replication.model.partitioning import PartitionedBy

KAFKA_SEGMENTS, KAFKA_PARTITIONS = "kafka-segments", "kafka-partitions"


def _range(pair: Any) -> OffsetRange:
    if not isinstance(pair, list) or [type(number) for number in pair] != [int, int]:
        raise ValueError(f"not an offset range: {pair!r}")
    return OffsetRange(*pair)


def _mapped_offset(numbers: Any) -> MappedOffset:
    if not isinstance(numbers, list) or [type(number) for number in numbers] != [int] * 3 or min(numbers) < 0:
        raise ValueError(f"not a mapped offset: {numbers!r}")
    return MappedOffset(*numbers)


def _place(parts: Any) -> Place:
    if not isinstance(parts, list) or [type(part) for part in parts] != [str, int, int] or min(parts[1:]) < 0:
        raise ValueError(f"not a place: {parts!r}")
    return Place(*parts)


Number = Annotated[int, Field(ge=0)]
JsonPlace = Annotated[Place, PlainValidator(_place)]
JsonRange = Annotated[OffsetRange, PlainValidator(_range)]
JsonCoverage = Annotated[Coverage, PlainValidator(Coverage.decode)]
JsonMappedOffset = Annotated[MappedOffset, PlainValidator(_mapped_offset)]


class _Part(BaseModel):
    """A field that has fields of its own. Unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class JsonIds(_Part):
    source_cluster: str
    source_topic: str
    target_topic: str

    def value(self) -> Ids:
        return Ids(self.source_cluster, self.source_topic, self.target_topic)


class JsonSegment(_Part):
    partition: Number
    first: Number
    last: Number
    count: Number
    digest: str

    def value(self) -> Segment:
        return Segment(partition=self.partition, first=self.first, last=self.last, count=self.count, digest=self.digest)


class JsonKafkaSegments(_Part):
    kind: Literal["kafka-segments"]
    segments: list[JsonSegment]


class JsonFailed(_Part):
    offset: Number
    kind: str
    reason: str
    error: str
    size: int
    key_digest: str
    digest: str
    place: JsonPlace | None

    def value(self) -> FailedRecord:
        return FailedRecord(
            offset=self.offset,
            kind=self.kind,
            reason=self.reason,
            error=self.error,
            size=self.size,
            key_digest=self.key_digest,
            digest=self.digest,
            place=self.place,
        )


class JsonPartitionedBy(_Part):
    name: str
    hash: str
    partitions: Annotated[int, Field(ge=1)]

    def value(self) -> PartitionedBy:
        return PartitionedBy(name=self.name, hash=self.hash, partitions=self.partitions)


class JsonPart(_Part):
    partition: Number
    offsets: JsonCoverage
    count: Number
    digest: str

    def value(self) -> Part:
        return Part(partition=self.partition, offsets=self.offsets, count=self.count, digest=self.digest)


class JsonKafkaPartitions(_Part):
    kind: Literal["kafka-partitions"]
    by: JsonPartitionedBy
    parts: list[JsonPart]

    def value(self) -> KafkaPartitions:
        if not all(part.offsets for part in self.parts):
            raise ValueError("a part without offsets")
        return KafkaPartitions(self.by.value(), tuple(part.value() for part in self.parts))


class JsonSpread(_Part):
    by: JsonPartitionedBy
    ends: list[Number]

    def value(self) -> Spread:
        return Spread(self.by.value(), tuple(self.ends))


class JsonTransform(_Part):
    name: str
    hash: str

    def value(self) -> Transform:
        return Transform(self.name, self.hash)


def _placement(content: Any) -> Placement:
    """A placement. A kind that this version knows is read strictly, another kind is kept unchanged."""
    match content:
        case {"kind": "kafka-segments"}:
            known = JsonKafkaSegments.model_validate(content)
            return KafkaSegments(tuple(segment.value() for segment in known.segments))
        case {"kind": "kafka-partitions"}:
            return JsonKafkaPartitions.model_validate(content).value()
        case {"kind": str(kind), **more}:
            return UnknownPlacement(kind, {str(name): value for name, value in more.items()})
        case _:
            raise ValueError(f"not a placement: {content!r}")


JsonPlacement = Annotated[Placement, PlainValidator(_placement)]
