"""Chooses the target partition of a record. Pure: the copier and the audit call the same code."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from zlib import crc32

from confluent_kafka import murmur2

from kafka_replication.copying.sink import Record, RefusedAt
from kafka_replication.copying.steps import Origin, given, hash_of, imported
from kafka_replication.model.choices import (
    BUILT_IN,
    BY_KEY,
    KEEP,
    MURMUR2,
    ROUND_ROBIN,
    FailureKind,
    KeyHash,
    PartitionedBy,
    Partitioning,
    block,
)
from kafka_replication.model.errors import Refused
from kafka_replication.model.offsets import TopicPartition

Choose = Callable[[Record], int]


@dataclass(frozen=True, slots=True)
class Partitioner:
    """Chooses for the records of one source partition. ``by`` is what their receipts say."""

    by: PartitionedBy
    choose: Choose


def partitioner(
    partitioning: Partitioning, source: TopicPartition, partitions: Collection[int], cluster: str = ""
) -> Partitioner:
    """The partitioner of the replication file, for one source partition and these partitions of the target topic. A
    function is also given the id of the source's ``cluster``.

    Raises BadInput for a function that cannot be imported, and Refused where the target has no partition for it.
    """
    count, number = len(partitions), source.partition
    targets = partitioning.targets(number, partitions)
    if not targets or not set(targets) <= set(partitions):
        raise Refused(
            f"{source}: partitioning {partitioning.name} writes to target partition {', '.join(map(str, targets))} of"
            f" {count}",
            "add partitions to the target topic",
        )
    match partitioning.name:
        case str(name) if name == KEEP:
            return Partitioner(_by(name, count), lambda _: number)
        case str(name) if name == BY_KEY:
            # As `org.apache.kafka.clients.producer.internals.BuiltInPartitioner.partitionForKey`. Java's producer
            # spreads records without a key by chance; here they go by their offset, so that an audit knows where.
            return Partitioner(
                _by(name, count),
                lambda record: block(number, record[0], count) if record[2] is None else murmur2(record[2], count),
            )
        case str(name) if name == ROUND_ROBIN:
            return Partitioner(_by(name, count), lambda record: block(number, record[0], count))
        case name:
            function, text = imported(name, "partitioning")
            origin = Origin(cluster, source.topic, number)
            return Partitioner(_by(name, count, hash_of(text)), _calling(name, function, origin, count))


def _by(name: str, partitions: int, hash_: str = "") -> PartitionedBy:
    return PartitionedBy(name=name, hash=hash_, partitions=partitions)


def partition_of_key(by: KeyHash, key: bytes, partitions: int) -> int:
    """The partition in which producers put a key, with the partitioner of this name. librdkafka's puts an empty key
    into any one: here it has the first.
    """
    return murmur2(key, partitions) if by == MURMUR2 else crc32(key) % partitions


def check(partitioning: Partitioning) -> None:
    """Raise BadInput for a function that cannot be imported here."""
    if partitioning.name not in BUILT_IN:
        imported(partitioning.name, "partitioning")


def _calling(name: str, function: Callable[..., object], origin: Origin, count: int) -> Choose:
    def choose(record: Record) -> int:
        offset, taken = record[0], given(record, origin)
        try:
            number = function(taken, count)
        except Exception as e:  # noqa: BLE001  # a function of the user's may raise anything
            why = f"it raised {type(e).__name__}"  # not its text, which may show the record
        else:
            if type(number) is int and 0 <= number < count:
                return number
            why = f"it returned {number if isinstance(number, int) else type(number).__name__}"
        raise RefusedAt(
            f"{origin}: the partitioning {name} gives no partition from 0 to {count - 1} for the record at offset"
            f" {offset}: {why}",
            f"correct {name}; nothing at or after this record is copied",
            offset,
            kind=FailureKind.TRANSFORM,
            error=name,
            key=record[2],
        )

    return choose
