"""Compares chunks whose records lie in several target partitions, or between records of others.

`target_partition` has read each target partition once for all source partitions. Only a chunk whose digests differ is
read a second time here, record by record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_replication.kafka.audit.target_partition import OpenTarget
from kafka_replication.kafka.read.cursor import Cursor
from kafka_replication.kafka.read.scan import offset_of, record_of
from kafka_replication.kafka.write.partitioner import Choose, partitioner
from kafka_replication.ledger.entries import Receipt
from kafka_replication.ledger.placement import KafkaPartitions
from kafka_replication.model.errors import BadInput
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.model.partitioning import Partitioning
from kafka_replication.sinks.port import Record
from kafka_replication.verification.auditing import SpreadChunk
from kafka_replication.verification.chunks import places, set_aside
from kafka_replication.verification.digest import record_digest
from kafka_replication.verification.digests import RecordDigest, record_digest_for
from kafka_replication.verification.findings import Findings
from kafka_replication.verification.matching import Difference, Kind, Sent, match
from kafka_replication.verification.verify import PartDigest


def chooser(key: PartitionKey, placement: KafkaPartitions, cluster: str) -> Choose | None:
    """The function that chose the target partitions of a chunk; None if it is a function that is no longer the same."""
    by = placement.by
    try:
        today = partitioner(Partitioning(name=by.name), key.source, range(by.partitions), cluster)
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
class SpreadAudit:
    """Compares chunks of one source partition with what was read of the target partitions."""

    key: PartitionKey
    result: Findings
    open_target: OpenTarget
    logs: Mapping[int, OffsetRange]  # what can be read of the target partitions
    source: Callable[[Receipt], Iterable[Record]]  # the records of a chunk as the copier wrote them

    def chunk(self, chunk: SpreadChunk) -> None:
        receipt, found = chunk.receipt, chunk.found
        placement = receipt.placement
        assert isinstance(placement, KafkaPartitions)
        self.result.chunks += 1
        self.result.target_records += sum(part.count for part in found.values())
        intact = all(found.get(part.partition) == PartDigest(part.count, part.digest) for part in placement.parts)
        choose = chooser(self.key, placement, receipt.ids.source_cluster) if chunk.by_content else None
        if choose is None:
            if chunk.by_content:
                self.result.note(
                    f"{placement.by.name} is no longer the same: chunks that it spread are compared with their receipts"
                )
            self.result.by_receipt += receipt.range.span
            if not intact:
                self.result.differ_by_receipt(receipt, sum(part.count for part in found.values()))
            return
        expected = Expected.of(self.source(receipt), choose, receipt)
        if not expected.equals(found):
            self.result.differ_from_source(receipt, list(self._differences(placement, expected)), intact=intact)
        self.result.by_content += receipt.range.span

    def _differences(self, placement: KafkaPartitions, expected: Expected) -> Iterator[Difference]:
        """The differences of a chunk, record by record."""
        for part in placement.parts:
            with self.open_target(TopicPartition(self.key.target_topic, part.partition)) as reader:
                log = self.logs.get(part.partition, OffsetRange(0, 0))
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
    return records(source.read(receipt.range, trusting=True), aside)
