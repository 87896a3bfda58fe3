"""Audit past ranges of a replication: one pass over each side, in this process, without a lease and without Spark."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain

from kafka_replication.kafka import offsets, topics
from kafka_replication.kafka.cursor import Cursor
from kafka_replication.kafka.transactions import longest_wait
from kafka_replication.ledger.entries import Receipt
from kafka_replication.ledger.receipts import Receipts
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import BadInput, LedgerUnreadable, ReplicationError
from kafka_replication.model.keys import PartitionKey, consumer_group
from kafka_replication.model.offsets import MAX_OFFSET, Coverage, OffsetRange, TopicPartition
from kafka_replication.model.times import now
from kafka_replication.planning.gaps import listed
from kafka_replication.planning.snapshot import Topic
from kafka_replication.reporting.audit import AuditReport, PartitionAudit
from kafka_replication.runs.run import Run
from kafka_replication.verification.audit import Difference, Kind, Unit, area_of, compare, units
from kafka_replication.verification.digests import Digest, digest_for
from kafka_replication.verification.verify import select_receipts

log = logging.getLogger(__name__)
EVERYTHING = OffsetRange(0, MAX_OFFSET)


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """Which past ranges. ``range`` is widened to whole chunks; without bounds the whole target is looked through for
    strangers.
    """

    topic: str | None = None
    partition: int | None = None
    range: OffsetRange = EVERYTHING


@dataclass(frozen=True, slots=True)
class Sides:
    """Both clusters and the ledger, the target's ends taken first: whatever lies below them, the ledger knows."""

    target: Mapping[str, Topic]
    ends: Mapping[TopicPartition, int]
    source_cluster: str
    source: Mapping[str, Topic]
    view: LedgerView
    receipts: Receipts


def audit(run: Run, request: AuditRequest = AuditRequest()) -> AuditReport:
    """Every asked partition, one after the other. Raises BadInput where nothing was ever copied, Unreachable."""
    keys = sorted(key for key in run.view().positions if _asked(key, request))
    if not keys:
        raise BadInput(
            f"{run.replication.name} never copied {request.topic or 'anything'}", "check --topic and --partition"
        )
    sides = _sides(run, keys)
    if (
        not any(sides.view.positions[key].coverage.within(request.range) for key in keys)
        and request.range != EVERYTHING
    ):
        raise BadInput(f"nothing of {request.range} was copied", "kafka-replication ledger says what was")
    return AuditReport(run.replication.name, run.run_id, now(), tuple(_one(run, sides, key, request) for key in keys))


def _asked(key: PartitionKey, request: AuditRequest) -> bool:
    return request.topic in (None, key.source.topic) and request.partition in (None, key.source.partition)


def _sides(run: Run, keys: Collection[PartitionKey]) -> Sides:
    target = topics.describe(run.clusters.target_admin, {key.target_topic for key in keys})
    there = [
        key.target
        for key in keys
        if key.target_topic in target and key.target.partition in target[key.target_topic].partitions
    ]
    ends = offsets.stable_ends(run.clusters.target_admin, there, longest_wait(run.replication.copying, run.deadline))
    cluster, source = (
        topics.cluster_id(run.clusters.source_admin),
        topics.describe(run.clusters.source_admin, {key.source.topic for key in keys}),
    )
    return Sides(target, ends, cluster, source, run.view(), run.clusters.ledger.receipts(dict.fromkeys(keys)))


def _one(run: Run, sides: Sides, key: PartitionKey, request: AuditRequest) -> PartitionAudit:
    """One partition's audit; what stops it is in its ``errors``, for the others go on."""
    position = sides.view.positions[key]
    mine = sides.receipts.of(key, position.generation)
    asked = [each.range for each in mine if each.range.intersection(request.range)]
    range_ = OffsetRange(min(asked, default=OffsetRange(0, 0)).from_, max((each.until for each in asked), default=0))
    gaps = [
        each
        for each in sides.view.gaps.get(key, ())
        if each.generation == position.generation and each.range.intersection(request.range)
    ]
    made = PartitionAudit(key=key, generation=position.generation, range=range_, lost=listed({key: gaps}))
    try:
        lost = sides.view.lost(key, position.generation)
        wanted = Coverage.of([*asked, *position.coverage.within(request.range)]).subtract(lost)
        expired = _expired(run, sides, made, wanted)
        work = _Work(
            run=run,
            sides=sides,
            key=key,
            chosen=select_receipts(wanted.subtract(expired), mine),
            made=made,
            some_expired=bool(expired),
        )
        work.all(complete=request.range == EVERYTHING)
    except ReplicationError as e:
        made.errors.append(str(e))
    made.finish()
    log.info("audited %s %s: %s", key, made.range, made.outcome)
    return made


def _expired(run: Run, sides: Sides, made: PartitionAudit, wanted: Coverage) -> Coverage:
    """What of ``wanted`` has no receipt any more since receipts are kept for a limited time; noted in the audit."""
    mine = sides.receipts.of(made.key, made.generation)
    missing = wanted.subtract(Coverage.of(receipt.range for receipt in mine))
    if not (missing and sides.receipts.incomplete(made.key)):
        return Coverage()
    made.notes.append(
        f"receipts of {missing} have expired and these offsets were not compared: receipts are kept for"
        f" {run.replication.retention.receipts} seconds (retention.receipts)"
    )
    return missing


@dataclass(slots=True, kw_only=True)
class _Work:
    """The reading of one partition on both sides."""

    run: Run
    sides: Sides
    key: PartitionKey
    chosen: Sequence[Receipt]
    made: PartitionAudit
    some_expired: bool
    readable: OffsetRange | None = field(init=False, default=None)  # the source offsets that can still be compared with
    there: OffsetRange = field(init=False, default=OffsetRange(0, 0))

    def all(self, *, complete: bool) -> None:
        run, key = self.run, self.key
        self._look_at_source()
        if not self._look_at_target():
            return
        stall, group = run.replication.copying.stall_timeout, consumer_group(run.replication.name)
        others = [
            each
            for each in self.sides.receipts.all(self.key)
            if each.ids.target_topic == self.sides.target[key.target_topic].topic_id
        ]
        work = units(self.chosen, others, self._window(complete))
        with (
            closing(Cursor(run.clusters.source, group, key.source, stall)) as source,
            closing(Cursor(run.clusters.target, group, key.target, stall)) as target,
        ):
            for unit in work:
                self._unit(unit, source, target)
            self.made.source_records, self.made.target_records = source.records, target.records

    def _look_at_source(self) -> None:
        topic, ids = self.sides.source.get(self.key.source.topic), self.sides.view.positions[self.key].ids
        if topic is None or (self.sides.source_cluster, topic.topic_id) != (ids.source_cluster, ids.source_topic):
            self.made.notes.append("the source topic is gone or was re-created: compared with the receipts only")
        elif self.key.source.partition in topic.partitions:
            found = topic.partitions[self.key.source.partition]
            self.readable = OffsetRange(min(found.log_start, found.last_stable), found.last_stable)
            if found.last_stable < self.made.range.until:
                self.made.notes.append(
                    f"the source ends at {found.last_stable}: what was copied from above it is compared with the"
                    " receipts"
                )

    def _look_at_target(self) -> bool:
        topic, at = self.sides.target.get(self.key.target_topic), self.key.target
        if topic is None or at not in self.sides.ends:
            self.made.errors.append(
                f"{at} on the target is gone. Remedy: restore it, or start anew with kafka-replication reset"
            )
            return False
        if topic.topic_id != self.sides.view.positions[self.key].ids.target_topic:
            self.made.notes.append("the target topic was re-created since: its content is compared all the same")
        self.there = OffsetRange(
            min(topic.partitions[at.partition].log_start, self.sides.ends[at]), self.sides.ends[at]
        )
        return True

    def _window(self, complete: bool) -> OffsetRange | None:
        """Where strangers are looked for: the whole log, or between the chunks that were asked for.

        With ``on_existing_target: append`` what lies before our first record may have been there before. Where receipts
        have expired, what lies before the first chunk with a receipt is theirs: a partition is written in their order.
        """
        if self.some_expired and complete and self.run.replication.on_existing_target == "refuse":
            areas = [area for receipt in self.sides.receipts.all(self.key) if (area := area_of(receipt))]
            first = min((area.from_ for area in areas), default=self.there.until)
            return OffsetRange(first, MAX_OFFSET).intersection(self.there)
        if complete and self.run.replication.on_existing_target == "refuse":
            return self.there
        areas = [area for each in self.chosen if (area := area_of(each))]
        if not areas:
            return None
        until = MAX_OFFSET if complete else max(each.until for each in areas)
        return OffsetRange(min(areas).from_, until).intersection(self.there)

    def _unit(self, unit: Unit, source: Cursor, target: Cursor) -> None:
        area = unit.target.intersection(self.there) if unit.target else None
        receipt = unit.receipt
        if receipt is None:
            found = target.seen(area) if area else iter(())
            self.made.differ(Difference(Kind.EXTRA, None, each.offset, each.digest) for each in found)
            return
        self.made.chunks += 1
        try:
            total = digest_for(receipt)()
        except LedgerUnreadable as e:  # neither the chunk nor its digest is wrong, as far as this version can tell
            self.made.not_auditable(receipt, e)
            return
        found = target.seen(area, total) if area else iter(())
        if self.readable and receipt.range.intersection(self.readable) == receipt.range:
            self.made.by_content += receipt.range.span
            differences = compare(source.seen(receipt.range), found, _places(receipt))
            if _vouched(receipt, total):  # what the source lost since (compaction, say) is no fault of the copy
                self.made.not_at_source += sum(each.kind is Kind.EXTRA for each in differences)
                differences = [each for each in differences if each.kind is not Kind.EXTRA]
            self.made.differ(differences)
        else:
            self.made.by_receipt += receipt.range.span
            _drain(found)
            if not _vouched(receipt, total):
                self.made.differ_by_receipt(receipt, total.count)


def _places(receipt: Receipt) -> Sequence[int]:
    """The target offset of each record of the chunk, in source order."""
    runs = [range(each.first, each.last + 1) for each in receipt.segments]
    return runs[0] if len(runs) == 1 else list(chain.from_iterable(runs))


def _vouched(receipt: Receipt, found: Digest) -> bool:
    return found.count == receipt.count and found.hexdigest() == receipt.digest


def _drain(records: Iterator[object]) -> None:
    for _ in records:
        pass
