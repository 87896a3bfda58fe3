"""Audit chunks whose records lie in several target partitions, or between records of others.

Each target partition is read once for all source partitions that write there, in the order of its offsets, and gives
the digest of each part of each chunk. Only a chunk whose digests differ is read a second time, record by record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from kafka_replication.kafka.read.cursor import Cursor
from kafka_replication.kafka.read.scan import offset_of, record_of
from kafka_replication.kafka.write.partitioner import Choose, partitioner
from kafka_replication.ledger.entries import Receipt
from kafka_replication.ledger.placement import KafkaPartitions, Part
from kafka_replication.model.errors import BadInput, LedgerUnreadable, ReplicationError
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.model.partitioning import MAP, Partitioning
from kafka_replication.reporting.audit import LISTED, PartitionAudit
from kafka_replication.sinks.port import Record
from kafka_replication.targets.port import RecordReader
from kafka_replication.verification.chunks import places, set_aside
from kafka_replication.verification.digest import record_digest
from kafka_replication.verification.digests import RecordDigest, record_digest_for
from kafka_replication.verification.matching import Difference, Kind, Seen, Sent, match
from kafka_replication.verification.verify import PartDigest

Name = tuple[PartitionKey, int, int, int]  # key, generation, first source offset, target partition
OpenTarget = Callable[[TopicPartition], AbstractContextManager[RecordReader]]


def name_of(key: PartitionKey, receipt: Receipt, part: Part) -> Name:
    return key, receipt.generation, receipt.range.from_, part.partition


@dataclass(frozen=True, slots=True)
class Claim:
    """A part of a chunk. Its digest is wanted, or only its offsets matter."""

    name: Name
    part: Part
    receipt: Receipt | None = None
    wanted: bool = False

    def digest(self) -> RecordDigest | None:
        if not self.wanted or self.receipt is None:
            return None
        try:
            return record_digest_for(self.receipt)()
        except LedgerUnreadable:  # reported where the chunk is compared
            return None


@dataclass(slots=True, kw_only=True)
class TargetRead:
    """The result of reading the target: the digest of each wanted part, and the records that belong to nobody."""

    parts: dict[Name, PartDigest] = field(default_factory=dict)
    extra: dict[TopicPartition, list[Difference]] = field(default_factory=dict)
    failed: dict[TopicPartition, ReplicationError] = field(default_factory=dict)
    not_searched: set[str] = field(default_factory=set)  # target topics with records of receipts that have expired
    further: dict[TopicPartition, int] = field(default_factory=dict)  # extra records that are only counted

    def read(self, open_: OpenTarget, at: TopicPartition, claims: Sequence[Claim], log: OffsetRange) -> None:
        """Read the claims in one target partition, in the order of their offsets. Only ``log`` can be read."""
        self._read(open_, at, claims, log, None)

    def read_all(self, open_: OpenTarget, at: TopicPartition, claims: Sequence[Claim], log: OffsetRange) -> None:
        """As `read`, and everything between the claims, too, which is ``extra``."""
        self._read(open_, at, claims, log, self.extra.setdefault(at, []))

    def _read(
        self,
        open_: OpenTarget,
        at: TopicPartition,
        claims: Sequence[Claim],
        log: OffsetRange,
        extra: list[Difference] | None,
    ) -> None:
        digests = {number: digest for number, claim in enumerate(claims) if (digest := claim.digest()) is not None}
        try:
            with open_(at) as reader:
                for number, range_ in _pieces(claims, log):
                    if number is None and extra is not None:
                        self._add_extra(extra, at, reader.seen(range_))
                    elif number in digests:
                        for record in reader.content(range_):
                            digests[number].add(*record[1:])
        except ReplicationError as error:
            self.failed[at] = error
            return
        self.parts |= {claims[n].name: PartDigest(d.count, d.hexdigest()) for n, d in digests.items()}

    def _add_extra(self, extra: list[Difference], at: TopicPartition, found: Iterable[Seen]) -> None:
        for seen in found:
            if len(extra) < LISTED:
                extra.append(Difference(Kind.EXTRA, None, seen.place, seen.digest, at.partition))
            else:
                self.further[at] = self.further.get(at, 0) + 1

    def report_extra(self, result: PartitionAudit, keys: Collection[PartitionKey]) -> None:
        """Add the records of nobody that are reported with this partition: those in the target partition of its number,
        and with the first of ``keys`` those in further ones.
        """
        key = result.key
        numbers = {other.source.partition for other in keys if other.target_topic == key.target_topic}
        first = key.source.partition == min(numbers)
        for at, found in self.extra.items():
            own = at.partition == key.source.partition or (first and at.partition not in numbers)
            if at.topic == key.target_topic and own:
                result.differ(found)
                result.counts[Kind.EXTRA] += self.further.get(at, 0)
                result.unlisted += self.further.get(at, 0)


def _pieces(claims: Sequence[Claim], log: OffsetRange) -> Iterator[tuple[int | None, OffsetRange]]:
    """The ranges of the claims with the numbers of these, and None with the ranges between them; all within the log."""
    places = sorted((range_, number) for number, claim in enumerate(claims) for range_ in claim.part.offsets)
    position = log.from_
    for range_, number in places:
        if between := OffsetRange(min(position, range_.from_), range_.from_).intersection(log):
            yield None, between
        if there := range_.intersection(log):
            yield number, there
        position = max(position, range_.until)
    if position < log.until:
        yield None, OffsetRange(position, log.until)


def chooser(key: PartitionKey, placement: KafkaPartitions, cluster: str) -> Choose | None:
    """The function that chose the target partitions of a chunk; None if it is a function that is no longer the same."""
    by = placement.by
    said = Partitioning(name=by.name, map={key.source.partition: int(by.hash)} if by.name == MAP else {})
    try:
        today = partitioner(said, key.source, range(by.partitions), cluster)
    except BadInput:
        return None
    return today.choose if today.by.hash == by.hash else None


@dataclass(slots=True)
class Expected:
    """The records of one chunk as they should lie on the target, by partition."""

    sent: dict[int, list[Sent]] = field(default_factory=lambda: defaultdict(list))
    digests: dict[int, RecordDigest] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Iterable[Record], choose: Choose, receipt: Receipt) -> Expected:
        expected, new_digest = cls(), record_digest_for(receipt)
        for record in records:
            partition = choose(record)
            expected.sent[partition].append(Sent(record[0], record_digest(*record[1:])))
            if partition not in expected.digests:
                expected.digests[partition] = new_digest()
            expected.digests[partition].add(*record[1:])
        return expected

    def equals(self, parts: Mapping[int, PartDigest]) -> bool:
        mine = {number: PartDigest(digest.count, digest.hexdigest()) for number, digest in self.digests.items()}
        return mine == {number: part for number, part in parts.items() if part.count}


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiPartitionAuditor:
    """Compares the chunks of one source partition with what was read of the target."""

    key: PartitionKey
    read: TargetRead
    result: PartitionAudit
    open_target: OpenTarget
    log: Callable[[TopicPartition], OffsetRange | None]  # what can be read of a target partition
    source: Callable[[Receipt], Iterable[Record]]  # the records of a chunk as the copier wrote them

    def chunk(self, receipt: Receipt, *, readable: bool) -> None:
        """Compare one chunk. ``readable``: the source still has all of its offsets."""
        placement = receipt.placement
        assert isinstance(placement, KafkaPartitions)
        self.result.chunks += 1
        try:
            record_digest_for(receipt)
        except LedgerUnreadable as e:  # the chunk may be correct; this version cannot check it
            self.result.not_auditable(receipt, e)
            return
        found = self._found(receipt, placement)
        self.result.target_records += sum(part.count for part in found.values())
        intact = all(found[part.partition] == PartDigest(part.count, part.digest) for part in placement.parts)
        choose = chooser(self.key, placement, receipt.ids.source_cluster) if readable else None
        if choose is None:
            self._by_receipt(receipt, placement, found, intact=intact, changed=readable)
            return
        self.result.by_content += receipt.range.span
        expected = Expected.of(self.source(receipt), choose, receipt)
        if not expected.equals(found):
            self._differ(receipt, placement, expected, intact=intact)

    def _found(self, receipt: Receipt, placement: KafkaPartitions) -> dict[int, PartDigest]:
        for part in placement.parts:
            if error := self.read.failed.get(TopicPartition(self.key.target_topic, part.partition)):
                raise error
        nothing = PartDigest(0, "")
        return {
            part.partition: self.read.parts.get(name_of(self.key, receipt, part), nothing) for part in placement.parts
        }

    def _by_receipt(
        self,
        receipt: Receipt,
        placement: KafkaPartitions,
        found: Mapping[int, PartDigest],
        *,
        intact: bool,
        changed: bool,
    ) -> None:
        if changed:
            note = f"{placement.by.name} is no longer the same: chunks that it spread are compared with their receipts"
            self.result.notes += [] if note in self.result.notes else [note]
        self.result.by_receipt += receipt.range.span
        if not intact:
            self.result.differ_by_receipt(receipt, sum(part.count for part in found.values()))

    def _differ(self, receipt: Receipt, placement: KafkaPartitions, expected: Expected, *, intact: bool) -> None:
        """Add how the chunk differs, record by record."""
        self.result.differ_from_source(receipt, list(self._differences(placement, expected)), intact=intact)

    def _differences(self, placement: KafkaPartitions, expected: Expected) -> Iterator[Difference]:
        for part in placement.parts:
            at = TopicPartition(self.key.target_topic, part.partition)
            with self.open_target(at) as reader:
                log = self.log(at) or OffsetRange(0, 0)
                there = (range_.intersection(log) for range_ in part.offsets)
                seen = (record for range_ in there if range_ for record in reader.seen(range_))
                free = places([part])
                sent = (one._replace(place=next(free, None)) for one in expected.sent.get(part.partition, ()))
                matched = match(sent, seen, ordered=True)
                yield from (one._replace(partition=part.partition) for one in matched.differences())
        for number in sorted(expected.sent.keys() - {part.partition for part in placement.parts}):
            for record in expected.sent[number]:
                yield Difference(Kind.MISSING, record.offset, None, record.digest, number)


def records(messages: Iterable[Any], without: Container[int] = ()) -> Iterator[Record]:
    """The records that the copier reads of these messages, but for the offsets ``without``, which it set aside."""
    return (record_of(message) for message in messages if offset_of(message) not in without)


def copied(source: Cursor, receipt: Receipt) -> Iterator[Record]:
    """The source records of a chunk that were not set aside."""
    aside = set_aside(receipt)
    return records(source.read(receipt.range, aside), aside)
