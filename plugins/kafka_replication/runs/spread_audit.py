"""Audit chunks whose records lie in several target partitions, or between records of others.

Each target partition is read once for all source partitions that write there, in the order of its offsets, and gives
the digest of each part of each chunk. Only a chunk whose digests differ is read a second time, record by record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka_replication.kafka.cursor import Cursor
from kafka_replication.kafka.partitioner import Choose, partitioner
from kafka_replication.kafka.scan import headers_of, offset_of
from kafka_replication.ledger.entries import Receipt
from kafka_replication.ledger.placement import KafkaPartitions, Part
from kafka_replication.model.errors import BadInput
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.model.partitioning import MAP, Partitioning
from kafka_replication.verification.audit import Difference, Kind, Seen, compare
from kafka_replication.verification.digest import Fingerprint
from kafka_replication.verification.digests import Digest, digest_for
from kafka_replication.verification.verify import PartDigest

Name = tuple[PartitionKey, int, int, int]  # key, generation, first source offset, target partition


@dataclass(frozen=True, slots=True)
class Claim:
    """A part of a chunk. Its digest is wanted, unless only its offsets matter."""

    name: Name
    part: Part
    receipt: Receipt
    wanted: bool


def name_of(key: PartitionKey, receipt: Receipt, part: Part) -> Name:
    return key, receipt.generation, receipt.range.from_, part.partition


@dataclass(slots=True)
class TargetRead:
    """What reading the target showed: the digest of each wanted part, and the records that belong to nobody."""

    parts: dict[Name, PartDigest] = field(default_factory=dict)
    extra: dict[TopicPartition, list[Difference]] = field(default_factory=lambda: defaultdict(list))

    def read(
        self, at: TopicPartition, cursor: Cursor, claims: Sequence[Claim], log: OffsetRange, *, all_: bool
    ) -> None:
        """Read one target partition. ``all_``: what lies between the claims is read, too. Only ``log`` can be read."""
        places = sorted(
            (range_.from_, range_.until, index) for index, c in enumerate(claims) for range_ in c.part.offsets
        )
        digests: dict[int, Digest] = {index: digest_for(c.receipt)() for index, c in enumerate(claims) if c.wanted}
        position = log.from_
        for from_, until, index in places:
            if all_:
                self._extra(at, cursor, OffsetRange(min(position, from_), from_).intersection(log))
            position = max(position, until)
            there = OffsetRange(from_, until).intersection(log)
            if there is not None and index in digests:
                for message in cursor.read(there):
                    digests[index].add(*_fields(message))
        if all_:
            self._extra(at, cursor, OffsetRange(min(position, log.until), log.until))
        self.parts |= {claims[i].name: PartDigest(d.count, d.hexdigest()) for i, d in digests.items()}

    def _extra(self, at: TopicPartition, cursor: Cursor, between: OffsetRange | None) -> None:
        for seen in cursor.seen(between) if between is not None and between.span else ():
            self.extra[at].append(Difference(Kind.EXTRA, None, seen.offset, seen.digest, at.partition))


def _fields(message: Any) -> tuple[int, bytes | None, bytes | None, Any]:
    return message.timestamp()[1], message.key(), message.value(), headers_of(message)


def chooser(key: PartitionKey, placement: KafkaPartitions) -> Choose | None:
    """What chose the target partitions of a chunk; None if this function is no longer the same."""
    by = placement.by
    said = Partitioning(name=by.name, map={key.source.partition: int(by.hash)} if by.name == MAP else {})
    try:
        known = partitioner(said, key.source, range(by.partitions))
    except BadInput:
        return None
    return known.choose if known.by.hash == by.hash else None


@dataclass(slots=True)
class Expected:
    """The records of one chunk as they should lie on the target, by partition, from the source."""

    seen: dict[int, list[Seen]] = field(default_factory=lambda: defaultdict(list))
    digests: dict[int, Digest] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Iterable[Any], choose: Choose, receipt: Receipt) -> Expected:
        expected, new_digest = cls(), digest_for(receipt)
        for message in records:
            fields = _fields(message)
            partition = choose((offset_of(message), *fields))
            fingerprint = Fingerprint()
            fingerprint.add(*fields)
            expected.seen[partition].append(Seen(offset_of(message), fingerprint.hash.digest()))
            if partition not in expected.digests:
                expected.digests[partition] = new_digest()
            expected.digests[partition].add(*fields)
        return expected

    def equals(self, parts: Mapping[int, PartDigest]) -> bool:
        mine = {number: PartDigest(digest.count, digest.hexdigest()) for number, digest in self.digests.items()}
        return mine == {number: part for number, part in parts.items() if part.count}


def differences(
    expected: Expected, placement: KafkaPartitions, target: Iterator[tuple[int, Iterator[Seen]]]
) -> Iterator[Difference]:
    """How a chunk differs, record by record. ``target`` has what is in each partition of the placement."""
    places = {
        part.partition: [offset for range_ in part.offsets for offset in range(*_pair(range_))]
        for part in placement.parts
    }
    read = set[int]()
    for number, seen in target:
        read.add(number)
        for difference in compare(iter(expected.seen.get(number, [])), seen, places[number]):
            yield difference._replace(partition=number)
    for number in expected.seen.keys() - read:
        for record in expected.seen[number]:
            yield Difference(Kind.MISSING, record.offset, None, record.digest, number)


def _pair(range_: OffsetRange) -> tuple[int, int]:
    return range_.from_, range_.until
