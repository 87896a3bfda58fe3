"""Audit past ranges: read source and target once, in this process, without a lease and without Spark."""

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
from kafka_replication.ledger.receipts import Receipts, committed
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import BadInput, LedgerUnreadable, ReplicationError
from kafka_replication.model.keys import PartitionKey, consumer_group
from kafka_replication.model.offsets import MAX_OFFSET, Coverage, OffsetRange, TopicPartition
from kafka_replication.model.times import now
from kafka_replication.planning.gaps import listed
from kafka_replication.planning.snapshot import Topic
from kafka_replication.reporting.audit import AuditReport, PartitionAudit
from kafka_replication.runs.audit_delivery import DeliveryAudit, delivered_window
from kafka_replication.runs.run import Run
from kafka_replication.verification.audit import Difference, Kind, Unit, area_of, compare, units
from kafka_replication.verification.digests import Digest, digest_for
from kafka_replication.verification.verify import select_receipts

log = logging.getLogger(__name__)
EVERYTHING = OffsetRange(0, MAX_OFFSET)


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """The ranges to audit. ``range`` is extended to whole chunks. Without a range, the audit also searches the whole
    target for records of other writers.
    """

    topic: str | None = None
    partition: int | None = None
    range: OffsetRange = EVERYTHING


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


def audit(run: Run, request: AuditRequest = AuditRequest()) -> AuditReport:
    """Audit the requested partitions one by one. Raises BadInput if nothing was copied, or Unreachable."""
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
        raise BadInput(f"nothing of {request.range} was copied", "kafka-replication ledger lists what was copied")
    return AuditReport(
        run.replication.name, run.run_id, now(), tuple(_audit_partition(run, sides, key, request) for key in keys)
    )


def _asked(key: PartitionKey, request: AuditRequest) -> bool:
    return request.topic in (None, key.source.topic) and request.partition in (None, key.source.partition)


def _sides(run: Run, keys: Collection[PartitionKey]) -> Sides:
    target = topics.describe_all(run.clusters.target_admin, {key.target_topic for key in keys})
    there = [
        key.target
        for key in keys
        if key.target_topic in target and key.target.partition in target[key.target_topic].partitions
    ]
    wait = longest_wait(run.replication.copying, run.deadline)
    ends, failures = offsets.stable_ends_each(run.clusters.target_admin, there, wait)
    cluster, source = (
        topics.cluster_id(run.clusters.source_admin),
        topics.describe_all(run.clusters.source_admin, {key.source.topic for key in keys}),
    )
    return Sides(
        target=target,
        ends=ends,
        failures=failures,
        source_cluster=cluster,
        source=source,
        view=run.view(),
        receipts=run.clusters.ledger.receipts(dict.fromkeys(keys)),
    )


def _audit_partition(run: Run, sides: Sides, key: PartitionKey, request: AuditRequest) -> PartitionAudit:
    """Audit one partition. An error is added to its ``errors``, so that the other partitions are still audited."""
    position = sides.view.positions[key]
    receipts = committed(sides.receipts.of(key, position.generation), position.coverage)
    ranges = [receipt.range for receipt in receipts if receipt.range.intersection(request.range)]
    range_ = OffsetRange(
        min(ranges, default=OffsetRange(0, 0)).from_, max((chunk.until for chunk in ranges), default=0)
    )
    gaps = [
        gap
        for gap in sides.view.gaps.get(key, ())
        if gap.generation == position.generation and gap.range.intersection(request.range)
    ]
    result = PartitionAudit(key=key, generation=position.generation, range=range_, lost=listed({key: gaps}))
    result.verified_by = sides.view.level(key, position.generation)
    try:
        lost = sides.view.lost(key, position.generation)
        wanted = Coverage.of([*ranges, *position.coverage.within(request.range)]).subtract(lost)
        result.given_back(sides.view.gone(key).subtract(position.coverage).within(request.range))
        expired = _expired(run, sides, result, wanted)
        work = _PartitionAuditor(
            run=run,
            sides=sides,
            key=key,
            chosen=select_receipts(wanted.subtract(expired), receipts),
            result=result,
            some_expired=bool(expired),
        )
        work.all(complete=request.range == EVERYTHING)
    except ReplicationError as e:
        result.errors.append(str(e))
    result.finish()
    log.info("audited %s %s: %s", key, result.range, result.outcome)
    return result


def _expired(run: Run, sides: Sides, result: PartitionAudit, wanted: Coverage) -> Coverage:
    """The offsets of ``wanted`` whose receipts have expired, or were deleted with their copies. Adds a note."""
    receipts = sides.receipts.of(result.key, result.generation)
    missing = wanted.subtract(Coverage.of(receipt.range for receipt in receipts))
    if missing and not missing.subtract(sides.view.gone(result.key)):
        result.notes.append(f"{missing} are no longer on the target, nor are their receipts: they were not compared")
        return missing
    if not (missing and sides.receipts.incomplete(result.key)):
        return Coverage()
    result.notes.append(
        f"receipts of {missing} have expired and these offsets were not compared: receipts are kept for"
        f" {run.replication.retention.receipts} seconds (retention.receipts)"
    )
    return missing


@dataclass(slots=True, kw_only=True)
class _PartitionAuditor:
    """Reads one partition on source and target, and compares the records."""

    run: Run
    sides: Sides
    key: PartitionKey
    chosen: Sequence[Receipt]
    result: PartitionAudit
    some_expired: bool
    readable: OffsetRange | None = field(init=False, default=None)  # the source offsets that can still be read
    target_log: OffsetRange = field(init=False, default=OffsetRange(0, 0))

    def all(self, *, complete: bool) -> None:
        run, key = self.run, self.key
        self._check_source()
        if not self._check_target():
            return
        stall, group = run.replication.copying.stall_timeout, consumer_group(run.replication.name)
        others = [
            receipt
            for receipt in self.sides.receipts.all(self.key)
            if receipt.ids.target_topic == self.sides.target[key.target_topic].topic_id
        ]
        delivered = [receipt for receipt in self.chosen if receipt.after is not None]
        alone = [receipt for receipt in self.chosen if receipt.after is None]
        window = self._window(complete)
        without = delivered_window(delivered, self.target_log, complete=complete)
        work = units(alone, [*others, *delivered], window, without)
        with (
            closing(Cursor(run.clusters.source, group, key.source, stall)) as source,
            closing(Cursor(run.clusters.target, group, key.target, stall)) as target,
        ):
            for unit in work:
                self._audit_unit(unit, source, target)
            if delivered and without:
                areas = Coverage.of(area for receipt in others if receipt.after is None and (area := area_of(receipt)))
                stretches = Coverage.of([without]).subtract(areas)
                DeliveryAudit(self.result, self.readable, source, target).all(delivered, stretches)
            self.result.source_records, self.result.target_records = source.records, target.records

    def _check_source(self) -> None:
        topic, ids = self.sides.source.get(self.key.source.topic), self.sides.view.positions[self.key].ids
        if topic is None or (self.sides.source_cluster, topic.topic_id) != (ids.source_cluster, ids.source_topic):
            self.result.notes.append(
                "the source topic is gone or was re-created: the target is compared with the receipts only"
            )
        elif self.key.source.partition in topic.partitions:
            source_offsets = topic.offsets(self.key.source.partition)
            self.readable = OffsetRange(
                min(source_offsets.log_start, source_offsets.last_stable), source_offsets.last_stable
            )
            if source_offsets.last_stable < self.result.range.until:
                self.result.notes.append(
                    f"the source ends at {source_offsets.last_stable}: copies of later offsets are compared with their"
                    " receipts"
                )

    def _check_target(self) -> bool:
        topic, at = self.sides.target.get(self.key.target_topic), self.key.target
        if at in self.sides.failures:
            raise self.sides.failures[at]
        if topic is None or at not in self.sides.ends:
            self.result.errors.append(
                f"{at} on the target is gone. Remedy: restore it, or reset the topic with kafka-replication reset"
            )
            return False
        if topic.topic_id != self.sides.view.positions[self.key].ids.target_topic:
            self.result.notes.append("the target topic was re-created since the copy: its current content is compared")
        self.target_log = OffsetRange(
            min(topic.offsets(at.partition).log_start, self.sides.ends[at]), self.sides.ends[at]
        )
        return True

    def _window(self, complete: bool) -> OffsetRange | None:
        """The target offsets to search for records of other writers: the whole log, or the requested chunks.

        With ``on_existing_target: append``, records before our first one may be older than the replication. If receipts
        have expired, records before the first chunk with a receipt belong to expired ones, because receipts and records
        have the same order.
        """
        if self.some_expired and complete and self.run.replication.on_existing_target == "refuse":
            areas = [area for receipt in self.sides.receipts.all(self.key) if (area := area_of(receipt))]
            first = min((area.from_ for area in areas), default=self.target_log.until)
            return OffsetRange(first, MAX_OFFSET).intersection(self.target_log)
        if complete and self.run.replication.on_existing_target == "refuse":
            return self.target_log
        areas = [area for receipt in self.chosen if (area := area_of(receipt))]
        if not areas:
            return None
        until = MAX_OFFSET if complete else max(area.until for area in areas)
        return OffsetRange(min(areas).from_, until).intersection(self.target_log)

    def _audit_unit(self, unit: Unit, source: Cursor, target: Cursor) -> None:
        area = unit.target.intersection(self.target_log) if unit.target else None
        receipt = unit.receipt
        if receipt is None:
            records = target.seen(area) if area else iter(())
            self.result.differ(Difference(Kind.EXTRA, None, record.offset, record.digest) for record in records)
            return
        self.result.chunks += 1
        try:
            total = digest_for(receipt)()
        except LedgerUnreadable as e:  # the chunk may be correct; this version cannot check it
            self.result.not_auditable(receipt, e)
            return
        records = target.seen(area, total) if area else iter(())
        if self.readable and receipt.range.intersection(self.readable) == receipt.range:
            self.result.by_content += receipt.range.span
            differences = compare(source.seen(receipt.range), records, _places(receipt))
            if _matches_receipt(
                receipt, total
            ):  # records that the source removed since, as by compaction, are no error
                self.result.not_at_source += sum(difference.kind is Kind.EXTRA for difference in differences)
                differences = [difference for difference in differences if difference.kind is not Kind.EXTRA]
            self.result.differ(differences)
        else:
            self.result.by_receipt += receipt.range.span
            _read_to_end(records)
            if not _matches_receipt(receipt, total):
                self.result.differ_by_receipt(receipt, total.count)


def _places(receipt: Receipt) -> Sequence[int]:
    """The target offset of each record of the chunk, in source order."""
    runs = [range(segment.first, segment.last + 1) for segment in receipt.segments]
    return runs[0] if len(runs) == 1 else list(chain.from_iterable(runs))


def _matches_receipt(receipt: Receipt, digest: Digest) -> bool:
    return digest.count == receipt.count and digest.hexdigest() == receipt.digest


def _read_to_end(records: Iterator[object]) -> None:
    for _ in records:
        pass
