"""Decides which chunks of a partition are audited, and how each is compared. Pure.

The things that an audit compares: both sides, the ledger, and today's pipeline of the replication.

The size of one task of an audit. Pure.

A task is at most so large that its result comes within seconds: the progress is seen, a worker that dies has lost
little, and a partition is audited by many workers at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kafka_replication.config import Replication
from kafka_replication.copying.pipeline import Pipeline
from kafka_replication.documents import listed
from kafka_replication.kafka import topics
from kafka_replication.ledger.entries import Handled, Position, Receipt
from kafka_replication.ledger.placement import Part
from kafka_replication.ledger.receipts import Receipts, committed
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import LedgerUnreadable, Refused, ReplicationError
from kafka_replication.model.offsets import MAX_OFFSET, Coverage, OffsetRange, PartitionKey, TopicPartition, readable
from kafka_replication.planning import refusals
from kafka_replication.planning.snapshot import Topic
from kafka_replication.reporting.adopted import adopted_text
from kafka_replication.reporting.audit import PartitionAudit
from kafka_replication.runs.run import Run
from kafka_replication.verification.auditing import Sample, Size
from kafka_replication.verification.digests import digest_for, record_digest_for
from kafka_replication.verification.verify import select_receipts


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Source, target and ledger. The target's ends are read first, so the ledger has an entry for all copies below
    them.
    """

    target: Mapping[str, Topic]
    ends: Mapping[TopicPartition, int]
    failures: Mapping[TopicPartition, ReplicationError]  # why the end of these target partitions is not known
    source_cluster: str
    source: Mapping[str, Topic]
    view: LedgerView
    receipts: Receipts
    pipeline: Pipeline | None  # as the replication's file and the user's functions are today

    def log(self, at: TopicPartition) -> OffsetRange | None:
        """The readable offsets of a target partition; None if it is gone or does not answer."""
        topic = self.target.get(at.topic)
        if topic is None or at not in self.ends:
            return None
        return readable(topic.offsets(at.partition).log_start, self.ends[at])

    def retried(self, key: PartitionKey) -> Iterator[tuple[Handled, Part]]:
        """The places of records that were set aside first, and copied later."""
        topic = self.target.get(key.target_topic)
        for entry in self.view[key].retries:
            if topic is not None and entry.ids.target_topic == topic.topic_id:
                yield from ((entry, part) for part in entry.parts)


def gone(at: TopicPartition) -> Refused:
    """The error of a target partition that is not there."""
    return Refused(f"{at} on the target is gone", "restore it, or reset the topic with kafka-replication reset")


def look(run: Run, keys: Collection[PartitionKey]) -> Sides:
    """Look at both sides. Raises BadInput for a transform that cannot be imported, Unreachable."""
    pipeline = run.pipeline
    target = run.clusters.target.catalogue.topics({key.target_topic for key in keys})
    positions = run.view().positions
    wanted = {
        TopicPartition(key.target_topic, number) for key in keys for number in positions[key].ends(key.source.partition)
    }
    there = [at for at in wanted if at.topic in target and at.partition in target[at.topic].partitions]
    standing = run.clusters.target.standing
    # Where others write, their transactions may stay open.
    ends, failures = standing.ends(there) if run.replication.placing.shared else standing.stable_ends(there)
    return Sides(
        target=target,
        ends=ends,
        failures=failures,
        source_cluster=topics.cluster_id(run.clusters.source_admin),
        source=topics.describe_all(run.clusters.source_admin, {key.source.topic for key in keys}),
        view=run.view(),
        receipts=run.clusters.ledger.receipts(dict.fromkeys(keys)),
        pipeline=pipeline,
    )


EVERYTHING = OffsetRange(0, MAX_OFFSET)


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """The ranges to audit. ``range`` is extended to whole chunks. Without a range and a sample, the audit also searches
    the whole target for records of other writers.
    """

    topic: str | None = None
    partition: int | None = None
    range: OffsetRange = EVERYTHING
    sample: Sample | None = None

    def asks_for(self, key: PartitionKey) -> bool:
        return self.topic in (None, key.source.topic) and self.partition in (None, key.source.partition)

    @property
    def is_complete(self) -> bool:
        """True if all of a partition is audited."""
        return self.range == EVERYTHING and self.sample is None


ALL = AuditRequest()


@dataclass(slots=True, kw_only=True)
class AuditedChunks:
    """The chunks of one partition that are audited, in source order, and what is known before anything is read.

    ``readable`` has the source offsets that can still be read; None if they are not those that were copied.
    ``reproducible`` and ``unknown`` have first offsets of chunks: the source can still show the first ones, and this
    version cannot compute the digests of the others.
    """

    key: PartitionKey
    position: Position
    result: PartitionAudit
    receipts: Sequence[Receipt] = ()
    readable: OffsetRange | None = None
    some_expired: bool = False
    is_given_up: bool = False  # because of an error
    reproducible: set[int] = field(default_factory=set)
    unknown: set[int] = field(default_factory=set)

    @property
    def comparable(self) -> list[Receipt]:
        """The chunks whose digests this version can compute."""
        return [receipt for receipt in self.receipts if receipt.range.from_ not in self.unknown]

    def by_content(self, receipt: Receipt) -> bool:
        """True if the source still has all of the chunk, and today's transform is the one that it was copied with."""
        return receipt.range.from_ in self.reproducible


def choose(replication: Replication, sides: Sides, key: PartitionKey, request: AuditRequest) -> AuditedChunks:
    """Choose of one partition. An error is added to its result, and nothing is chosen then."""
    account = sides.view[key]
    position = account.position
    receipts = committed(sides.receipts.of(key, position.generation), position.coverage)
    ranges = [receipt.range for receipt in receipts if receipt.range.intersection(request.range)]
    first, until = min(ranges, default=OffsetRange(0, 0)).from_, max((chunk.until for chunk in ranges), default=0)
    gaps = [gap for gap in account.gaps if gap.range.intersection(request.range)]
    result = PartitionAudit(
        key=key,
        generation=position.generation,
        range=OffsetRange(first, until),
        lost=listed({key: gaps}),
        verified_by=account.level,
    )
    if position.adopted is not None:
        text = adopted_text(key, position.start, position.adopted)
        result.note(f"{text}. This audit does not compare it; adopt --prove does, before it is adopted")
    chosen = AuditedChunks(key=key, position=position, result=result)
    try:
        wanted = Coverage.of([*ranges, *position.coverage.within(request.range)])
        wanted = wanted.subtract(account.given_up())
        result.offsets = wanted.span
        result.given_back(account.gone().subtract(position.coverage).within(request.range))
        expired = _expired(replication, sides, result, wanted)
        chosen.some_expired = bool(expired)
        found = select_receipts(wanted.subtract(expired), receipts)
        _check_source(sides, chosen)
        topic = sides.target.get(key.target_topic)
        if topic and topic.topic_id != position.ids.target_topic:
            result.notes.append("the target topic was re-created since the copy: its current content is compared")
        chosen.receipts = found if request.sample is None else request.sample.of(key, found)
        _decide_how(sides, chosen)
    except ReplicationError as error:
        result.fail(str(error))
        chosen.receipts, chosen.is_given_up = (), True
    return chosen


def _expired(replication: Replication, sides: Sides, result: PartitionAudit, wanted: Coverage) -> Coverage:
    """The offsets of ``wanted`` whose receipts have expired, or were deleted with their copies. Adds a note."""
    receipts = sides.receipts.of(result.key, result.generation)
    missing = wanted.subtract(Coverage.of(receipt.range for receipt in receipts))
    if missing and not missing.subtract(sides.view[result.key].gone()):
        result.notes.append(f"{missing} are no longer on the target, nor are their receipts: they were not compared")
        return missing
    if not (missing and sides.receipts.incomplete(result.key)):
        return Coverage()
    result.notes.append(
        f"receipts of {missing} have expired and these offsets were not compared: receipts are kept for"
        f" {replication.retention.receipts} seconds (retention.receipts)"
    )
    return missing


def _check_source(sides: Sides, chosen: AuditedChunks) -> None:
    key, ids, result = chosen.key, chosen.position.ids, chosen.result
    topic = sides.source.get(key.source.topic)
    if topic is None or (sides.source_cluster, topic.topic_id) != (ids.source_cluster, ids.source_topic):
        result.notes.append("the source topic is gone or was re-created: the target is compared with the receipts only")
    elif key.source.partition in topic.partitions:
        offsets = topic.offsets(key.source.partition)
        chosen.readable = offsets.readable
        if offsets.last_stable < chosen.position.next_offset:  # what it holds above the cut may be other records
            refusal = refusals.truncated(key, chosen.position, offsets.last_stable)
            result.errors.append(f"{refusal.what}. Remedy: {refusal.remedy}")


def _decide_how(sides: Sides, chosen: AuditedChunks) -> None:
    for receipt in chosen.receipts:
        try:
            (record_digest_for if receipt.interleaved else digest_for)(receipt)
        except LedgerUnreadable as error:  # the chunk may be correct; this version cannot check it
            chosen.result.chunks += 1
            chosen.result.not_auditable(receipt, error)
            chosen.unknown.add(receipt.range.from_)
            continue
        there = chosen.readable and receipt.range.intersection(chosen.readable) == receipt.range
        if there and chosen.result.recomputes(receipt, sides.pipeline.identity if sides.pipeline else None):
            chosen.reproducible.add(receipt.range.from_)


PART_OFFSETS = 500_000
PART_BYTES = 128 << 20
T = TypeVar("T")


def parts(work: Iterable[T], size_of: Callable[[T], Size]) -> Iterator[list[T]]:
    """The work in parts, each as large as a task may be, or one piece of work."""
    some, size = list[T](), Size()
    for one in work:
        larger = size + size_of(one)
        if some and (max(larger.records, larger.offsets) > PART_OFFSETS or larger.bytes > PART_BYTES):
            yield some
            some, larger = [], size_of(one)
        some.append(one)
        size = larger
    if some:
        yield some
