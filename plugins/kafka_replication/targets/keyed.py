"""The order, the partition and the finding of records of which a target keeps the newest one of each key: the same for
every kind of target.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kafka_replication.model import newest
from kafka_replication.model.newest import CRC32, MURMUR2, KeyHash
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.sinks.port import Record
from kafka_replication.verification.digest import record_digest
from kafka_replication.verification.newest import Found


class NoPlace(ValueError):
    """A record that has no place on the target, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedPartition:
    """One partition of a source topic that has all records of its keys. ``partition_of`` is the partition in which
    producers put a key: by their partitioner, the key, and the number of partitions.
    """

    number: int
    partitions: int
    partitioner: KeyHash
    partition_of: Callable[[KeyHash, bytes, int], int]

    def key(self, record: Record) -> bytes:
        """The key of a record of this partition. Raises NoPlace if records of its key are not all here."""
        if (key := record[2]) is None:
            raise NoPlace("it has no key, by which the newest record is kept (shape: latest)")
        if (right := self._right(self.partitioner, key)) != self.number:
            raise NoPlace(self._misplaced(key, right))
        return key

    def _right(self, by: KeyHash, key: bytes) -> int:
        return self.partition_of(by, key, self.partitions) if self.partitions > 1 else 0

    def _misplaced(self, key: bytes, right: int) -> str:
        other: KeyHash = CRC32 if self.partitioner == MURMUR2 else MURMUR2
        fits = f", where {other} would put it (target.partitioner)" if self._right(other, key) == self.number else ""
        return (
            f"{self.partitioner} puts its key into partition {right} of {self.partitions}, but it is in"
            f" {self.number}{fits}: records of a key in two partitions have no order"
        )


def version(generation: int, offset: int) -> int:
    """As `kafka_replication.model.newest.version`. Raises NoPlace."""
    try:
        return newest.version(generation, offset)
    except ValueError as error:
        raise NoPlace(str(error)) from None


@dataclass(frozen=True, slots=True)
class Origin:
    """Of which replication, generation and source partition records are."""

    replication: str
    generation: int
    source: TopicPartition


def found(read: Callable[[], tuple[Origin, Record]], own: Origin) -> Found:
    """The finding at a key, for who is looking for records of this origin. ``read`` raises ValueError, KeyError or
    TypeError for what is none of ours.
    """
    try:
        origin, (offset, *fields) = read()
    except (ValueError, KeyError, TypeError):
        return NOT_OURS
    if (origin.replication, origin.generation) != (own.replication, own.generation):
        return NOT_OURS
    return Found(origin.source, offset, record_digest(*fields))


NOT_OURS: Final = Found(None, -1, b"")
