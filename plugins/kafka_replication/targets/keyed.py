"""The order, the partition and the finding of records of which a target keeps the newest one of each key: the same for
every kind of target.

The places of one chunk's records on a target without transactions, as its receipt names them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from kafka_replication.copying.sink import Record
from kafka_replication.ledger.placement import KafkaSegments, Placement, Segment
from kafka_replication.model import choices
from kafka_replication.model.choices import CRC32, MURMUR2, KeyHash
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.verification.digests import Fingerprint, record_digest
from kafka_replication.verification.newest import Found, NewestRecords


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
    """As `kafka_replication.model.choices.version`. Raises NoPlace."""
    try:
        return choices.version(generation, offset)
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


@dataclass(slots=True)
class NewestPlaces:
    """The places of a chunk's records: at their keys."""

    partition: int
    newest: NewestRecords = field(default_factory=NewestRecords)

    def add(self, records: Sequence[Record]) -> None:
        for record in records:
            self.newest.add(record)

    def leave_out(self, offset: int) -> None:
        """It has no place."""

    def placement(self, digest: str) -> Placement:  # noqa: ARG002 - the receipt has it
        return self.newest.placement(self.partition) if self.newest.by_key else KafkaSegments()


class OffsetPlaces:
    """The places of a chunk's records: at the offsets from its first to its last record, without those of records that
    were set aside, which may be written there later.
    """

    def __init__(self, partition: int, *, digests: bool) -> None:
        """Without ``digests`` nothing is left out."""
        self._partition, self._digests = partition, digests
        self._parts: list[tuple[int, int, int, Fingerprint | None]] = []  # first, last, count, digest
        self._left_out: list[int] = []

    def add(self, records: Sequence[Record]) -> None:
        if self._digests:
            for offset, *fields in records:
                last = self._parts[-1][1] if self._parts else -1
                apart = offset != last + 1 and any(last < left_out < offset for left_out in self._left_out)
                if not self._parts or apart:
                    self._parts.append((offset, offset, 0, Fingerprint()))
                first, _, number, digest = self._parts[-1]
                assert digest is not None
                digest.add(*fields)
                self._parts[-1] = (first, offset, number + 1, digest)
        elif records:
            first, _, number, _ = self._parts.pop() if self._parts else (records[0][0], 0, 0, None)
            self._parts.append((first, records[-1][0], number + len(records), None))

    def leave_out(self, offset: int) -> None:
        """The record at this offset is not written."""
        self._left_out.append(offset)

    def placement(self, digest: str) -> KafkaSegments:
        """``digest`` covers all records."""
        return KafkaSegments(
            tuple(
                Segment(
                    partition=self._partition,
                    first=first,
                    last=last,
                    count=number,
                    digest=own.hexdigest() if own else digest,
                )
                for first, last, number, own in self._parts
            )
        )
