"""Audits target topics to which several source partitions wrote without transactions: what lies there that no receipt
names, and what is missing, can only be told of all of them together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import chain

from kafka_replication.kafka.topic_sides import topic_sides
from kafka_replication.ledger.entries import Receipt
from kafka_replication.ledger.placement import Part, offsets_by_partition
from kafka_replication.ledger.receipts import committed, of_earlier
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import Coverage, OffsetRange, TopicPartition
from kafka_replication.reporting.audit import PartitionAudit
from kafka_replication.runs.audit_sides import Sides
from kafka_replication.runs.run import Run
from kafka_replication.runs.spread_audit import TargetRead, name_of
from kafka_replication.verification.audit import Difference, Kind
from kafka_replication.verification.explaining import At, Explanation, Topic, Writer, explain, overlapping
from kafka_replication.verification.verify import PartDigest


@dataclass(slots=True)
class Compared:
    """What was found out about all chunks of the source partitions that are not where their receipts say."""

    lost: dict[PartitionKey, dict[OffsetRange, list[int]]] = field(default_factory=dict)  # of each compared chunk
    duplicates: Counter[PartitionKey] = field(default_factory=Counter)

    def chunk(self, key: PartitionKey, receipt: Receipt, result: PartitionAudit) -> bool:
        """Add what is missing of the chunk beyond what verification counted. False if it was not compared here."""
        lost = self.lost.get(key, {}).get(receipt.range)
        if lost is None:
            return False
        accepted = min(receipt.lost_in_delivery, len(lost))
        result.chunks += 1
        result.by_content += receipt.range.span
        result.target_records += receipt.count - len(lost)
        result.lost_in_delivery += accepted
        result.differ(Difference(Kind.MISSING, offset, None) for offset in lost[accepted:])
        return True


def not_whole(receipt: Receipt, result: PartitionAudit) -> None:
    """Add a chunk of which records were lost, where nothing tells which ones: the audit is not of the whole topic, or
    the source no longer shows them.
    """
    result.chunks += 1
    result.lost_in_delivery += receipt.lost_in_delivery
    result.notes.append(
        f"the chunk {receipt.range} was written without a transaction and was not whole: only an audit of the whole"
        " topic can compare it, as long as the source has its records"
    )


def is_intact(key: PartitionKey, receipt: Receipt, read: TargetRead) -> bool:
    """Whether each part of the chunk is what its receipt says, as it was read."""
    return all(
        read.parts.get(name_of(key, receipt, part)) == PartDigest(part.count, part.digest) for part in receipt.parts
    )


def compare_topics(run: Run, sides: Sides, keys: Collection[PartitionKey], read: TargetRead) -> Compared:
    """Whole topics, with all ``keys`` that write there. Records of nobody replace those that ``read`` has as extra.

    What cannot be read is an error of the target partitions.
    """
    compared = Compared()
    for name in sorted({key.target_topic for key in keys if sides.view.positions[key].sent_from is not None}):
        if name in read.not_searched or name not in sides.target:
            continue
        here, positions = sides.target[name].topic_id, sides.view.positions
        writers = sorted(k for k in keys if k.target_topic == name and positions[k].ids.target_topic == here)
        if not writers:  # all of it was copied to a topic that is gone
            continue
        try:
            _Comparing(run, sides, read, name, writers).add_to(compared)
        except ReplicationError as error:
            read.failed |= {TopicPartition(name, number): error for number in sides.target[name].partitions}
    return compared


class _Comparing:
    def __init__(self, run: Run, sides: Sides, read: TargetRead, topic: str, keys: Sequence[PartitionKey]) -> None:
        self._run, self._sides, self._read, self._name, self._keys = run, sides, read, topic, keys
        self._receipts = {key: self._current(key) for key in keys}
        there = (one for key in keys for one in self._receipts[key] if is_intact(key, one, read))
        self._doubtful = overlapping(list(there))

    def _current(self, key: PartitionKey) -> tuple[Receipt, ...]:
        position = self._sides.view.positions[key]
        return tuple(committed(self._sides.receipts.of(key, position.generation), position.coverage))

    def add_to(self, compared: Compared) -> None:
        clusters, stall = self._run.clusters, self._run.replication.copying.stall_timeout
        with topic_sides(
            self._run.replication.name, self._name, clusters.source, clusters.target, stall, self._sides.pipeline
        ) as sides:
            topic = self._topic()
            explanation = explain(topic, sides)
        self._add(compared, topic, explanation)

    def _topic(self) -> Topic:
        numbers = self._sides.target[self._name].partitions
        logs = {number: self._sides.log(TopicPartition(self._name, number)) for number in numbers}
        there = {number: log for number, log in logs.items() if log is not None}
        return Topic(writers=tuple(map(self._writer, self._keys)), logs=there, known=self._known())

    def _source_log(self, key: PartitionKey) -> OffsetRange | None:
        """What the source has; None if it is another topic now, or none."""
        topic, ids = self._sides.source.get(key.source.topic), self._sides.view.positions[key].ids
        if topic is None or (self._sides.source_cluster, topic.topic_id) != (ids.source_cluster, ids.source_topic):
            return None
        offsets = topic.readable.get(key.source.partition)
        return OffsetRange(min(offsets.log_start, offsets.last_stable), offsets.last_stable) if offsets else None

    def _writer(self, key: PartitionKey) -> Writer:
        position, log = self._sides.view.positions[key], self._source_log(key)
        compared = tuple(
            receipt
            for receipt in self._receipts[key]
            if receipt.after is not None
            and (receipt in self._doubtful or not is_intact(key, receipt, self._read))
            and log is not None
            and receipt.range.intersection(log) == receipt.range
            and receipt.transform == self._sides.transform
        )
        return Writer(
            key=key,
            next_offset=position.next_offset,
            sent_from=position.sent_from,
            receipts=self._receipts[key],
            compared=compared,
            readable=log is not None,
        )

    def _known(self) -> dict[int, Coverage]:
        """Of earlier generations, and of records that were retried."""
        parts = list[Part]()
        for key in self._keys:
            older = of_earlier(self._sides.receipts.all(key), self._sides.view.positions[key])
            parts += chain.from_iterable(receipt.parts for receipt in older)
            parts += (part for _, part in self._sides.retried(key))
        return offsets_by_partition(parts)

    def _add(self, compared: Compared, topic: Topic, explanation: Explanation) -> None:
        compared.duplicates.update(copy.key for copy in explanation.copies)
        for writer in topic.writers:
            chunks = {receipt.range: list[int]() for receipt in writer.compared}
            for lost in sorted(set(explanation.lost)):
                if lost.key == writer.key:
                    chunks[lost.chunk].append(lost.offset)
            compared.lost[writer.key] = chunks
        gone = sum(self._not_shown(writer, compared.duplicates[writer.key]) for writer in topic.writers)
        counted = min(len(explanation.foreign), gone)  # which ones, nothing tells any more
        compared.duplicates[self._keys[0]] += counted
        self._replace_extra(topic, explanation.foreign[counted:])

    def _not_shown(self, writer: Writer, found: int) -> int:
        """How many duplicates were counted that cannot be found because the source no longer has their records."""
        view, log = self._sides.view, self._source_log(writer.key)
        position = view.positions[writer.key]
        counted = view.delivered(writer.key, position.generation)
        if counted is None or (log is not None and log.from_ <= position.start):
            return 0
        return max(0, counted.duplicates - found)

    def _replace_extra(self, topic: Topic, foreign: Sequence[At]) -> None:
        for number in topic.logs:
            at = TopicPartition(self._name, number)
            before = [extra for extra in self._read.extra.get(at, ()) if (extra.target or 0) < topic.begin(number)]
            others = [
                Difference(Kind.EXTRA, None, one.offset, b"", number) for one in foreign if one.partition == number
            ]
            self._read.extra[at] = [*before, *others]
            self._read.further.pop(at, None)
