"""Audit past ranges: read source and target once, in this process, without a lease and without Spark."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain

from kafka_replication.kafka.read.cursor import Cursor
from kafka_replication.ledger.entries import Proof, Receipt
from kafka_replication.ledger.receipts import committed
from kafka_replication.model.errors import BadInput, LedgerUnreadable, Refused, ReplicationError
from kafka_replication.model.keys import PartitionKey, consumer_group
from kafka_replication.model.offsets import MAX_OFFSET, Coverage, OffsetRange, TopicPartition, readable
from kafka_replication.model.times import now
from kafka_replication.planning import refusals
from kafka_replication.planning.gaps import listed
from kafka_replication.reporting.audit import AuditReport, PartitionAudit
from kafka_replication.runs.audit.failed_audit import audit_failed
from kafka_replication.runs.audit.loss_audit import DeliveryAudit, delivered_window
from kafka_replication.runs.audit.multi_partition_audit import Claim, MultiPartitionAuditor, TargetRead, copied, name_of
from kafka_replication.runs.audit.sides import Sides, look
from kafka_replication.runs.audit.unknown_partitions import unknown_to_ledger
from kafka_replication.runs.run import Run
from kafka_replication.sinks.port import Record
from kafka_replication.targets.port import RecordReader
from kafka_replication.verification.chunks import Unit, area_of, claimed, places, set_aside, units
from kafka_replication.verification.digests import Digest, digest_for, equals
from kafka_replication.verification.matching import Difference, Kind, match
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

    @property
    def is_whole(self) -> bool:
        """True if whole topics are audited."""
        return self.partition is None and self.range == EVERYTHING


def audit(run: Run, request: AuditRequest = AuditRequest()) -> AuditReport:
    """Audit the requested partitions one by one. Raises BadInput if nothing was copied, or Unreachable."""
    keys = sorted(key for key in run.view().positions if _asked(key, request))
    unknown = unknown_to_ledger(run, run.view())
    of_unknown = tuple(result for key, result in unknown.items() if _asked(key, request))
    if not keys and of_unknown:
        return AuditReport(run.replication.name, run.run_id, now(), of_unknown, promise=run.clusters.promise)
    if not keys:
        raise BadInput(
            f"{run.replication.name} never copied {request.topic or 'anything'}", "check --topic and --partition"
        )
    sides = look(run, keys)
    read = _read_targets(run, sides, keys, request)
    if (
        not any(sides.view.positions[key].coverage.within(request.range) for key in keys)
        and request.range != EVERYTHING
    ):
        raise BadInput(f"nothing of {request.range} was copied", "kafka-replication ledger lists what was copied")
    return AuditReport(
        run.replication.name,
        run.run_id,
        now(),
        (*(_audit_partition(run, sides, key, request, read) for key in keys), *of_unknown),
        promise=run.clusters.promise,
    )


def _asked(key: PartitionKey, request: AuditRequest) -> bool:
    return request.topic in (None, key.source.topic) and request.partition in (None, key.source.partition)


def _read_targets(run: Run, sides: Sides, keys: Collection[PartitionKey], request: AuditRequest) -> TargetRead:
    """Read, once, each target partition that has chunks of several keys, or records of others between ours.

    If whole topics are audited, records that belong to no receipt are looked for, too. Not if receipts have expired:
    such a record may be of one of them.
    """
    read, claims = TargetRead(), _claims(sides, keys, request)
    whole = request.is_whole and not run.replication.placing.shared
    if whole:
        read.not_searched |= {key.target_topic for key in keys if sides.receipts.incomplete(key)}
    for at, here in sorted(claims.items()):
        if (log_ := sides.log(at)) is None:
            read.failed[at] = sides.failures.get(at) or _gone(at)
            continue
        if run.replication.on_existing_target == "append" or sides.was_reset(at.topic):
            current = (claim.part.first for claim in here if sides.is_current(*claim.name[:2]))
            first = min(current, default=log_.until)
            log_ = readable(max(first, log_.from_), log_.until)
        read_it = read.read_all if whole and at.topic not in read.not_searched else read.read
        read_it(run.clusters.target.standing.reader, at, here, log_)
    return read


def _gone(at: TopicPartition) -> Refused:
    return Refused(f"{at} on the target is gone", "restore it, or reset the topic with kafka-replication reset")


def _claims(
    sides: Sides, keys: Collection[PartitionKey], request: AuditRequest
) -> Mapping[TopicPartition, Sequence[Claim]]:
    """The parts of all chunks in the target topics that have chunks which `multi_partition_audit` compares."""
    claims: dict[TopicPartition, list[Claim]] = {}
    topics = set[str]()
    for key in keys:
        generation, topic = sides.view.positions[key].generation, sides.target.get(key.target_topic)
        for receipt in sides.receipts.all(key):
            if topic is None or receipt.ids.target_topic != topic.topic_id:
                continue
            asked = receipt.generation == generation and receipt.range.intersection(request.range) is not None
            for part in receipt.parts:
                at = TopicPartition(key.target_topic, part.partition)
                wanted = asked and receipt.interleaved
                claims.setdefault(at, []).append(Claim(name_of(key, receipt, part), part, receipt, wanted))
                topics |= {at.topic} if receipt.interleaved else set()
        for entry, part in sides.retried(key):
            name = key, entry.generation, -1 - entry.offsets.ranges[0].from_, part.partition
            claims.setdefault(TopicPartition(key.target_topic, part.partition), []).append(Claim(name, part))
    places = claims.keys() | sides.ends.keys() | sides.failures.keys()
    return {at: claims.get(at, []) for at in places if at.topic in topics}


def _audit_partition(
    run: Run, sides: Sides, key: PartitionKey, request: AuditRequest, read: TargetRead
) -> PartitionAudit:
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
        given_up = sides.view.given_up(key, position.generation)
        wanted = Coverage.of([*ranges, *position.coverage.within(request.range)]).subtract(given_up)
        result.given_back(sides.view.gone(key).subtract(position.coverage).within(request.range))
        expired = _expired(run, sides, result, wanted)
        work = _PartitionAuditor(
            run=run,
            sides=sides,
            key=key,
            chosen=select_receipts(wanted.subtract(expired), receipts),
            result=result,
            some_expired=bool(expired),
            read=read,
        )
        work.all(complete=request.range == EVERYTHING)
        read.report_extra(result, sides.view.positions)
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
    read: TargetRead
    readable: OffsetRange | None = field(init=False, default=None)  # the source offsets that can still be read
    target_log: OffsetRange = field(init=False, default=OffsetRange(0, 0))

    def all(self, *, complete: bool) -> None:
        self._check_source()
        self._check_target_id()
        self._interleaved()
        plain = any(not receipt.interleaved for receipt in self.chosen)
        if (plain or (not self.chosen and self.run.replication.placing.sole)) and self._check_target():
            self._plain(complete=complete)
        audit_failed(self.run, self.sides, self.chosen, self.result)

    def _interleaved(self) -> None:
        """The chunks whose target partitions were read for all source partitions together."""
        chosen = [receipt for receipt in self.chosen if receipt.interleaved]
        if not chosen:
            return
        if self.key.target_topic in self.read.not_searched:
            self.result.notes.append("receipts have expired: records that belong to none were not looked for")
        if self.key.target_topic not in self.sides.target:
            raise _gone(self.key.target)
        stall, group = self.run.replication.copying.stall_timeout, consumer_group(self.run.replication.name)
        with closing(Cursor(self.run.clusters.source, group, self.key.source, stall)) as source:
            auditor = MultiPartitionAuditor(
                key=self.key,
                read=self.read,
                result=self.result,
                open_target=self.run.clusters.target.standing.reader,
                log=self.sides.log,
                source=lambda receipt: self._written(receipt, copied(source, receipt)),
            )
            for receipt in chosen:
                today = self.result.recomputes(receipt, self.sides.transform)
                readable = self.readable and receipt.range.intersection(self.readable) == receipt.range
                auditor.chunk(receipt, readable=bool(readable and today))

    def _plain(self, *, complete: bool) -> None:
        """The chunks in a target partition that has no other writer, in its order."""
        run, key = self.run, self.key
        stall, group = run.replication.copying.stall_timeout, consumer_group(run.replication.name)
        others = [
            receipt
            for receipt in self.sides.receipts.all(self.key)
            if receipt.ids.target_topic == self.sides.target[key.target_topic].topic_id
        ]
        chosen = [receipt for receipt in self.chosen if not receipt.interleaved]
        alone = [receipt for receipt in chosen if receipt.proof is Proof.BY_TRANSACTION]
        delivered = [receipt for receipt in chosen if receipt.proof is Proof.BY_WINDOW]
        retried = [range_ for _, part in self.sides.retried(key) for range_ in part.offsets]
        without = delivered_window(delivered, self.target_log, complete=complete)
        work = units(alone, [*others, *delivered], self._window(complete), retried, without)
        with (
            closing(Cursor(run.clusters.source, group, key.source, stall)) as source,
            run.clusters.target.standing.reader(key.target) as target,
        ):
            for unit in work:
                self._audit_unit(unit, source, target)
            if delivered and without:
                self._delivered(delivered, without, others, source, target)
            self.result.source_records += source.records
            self.result.target_records += target.records

    def _delivered(
        self,
        chosen: Sequence[Receipt],
        window: OffsetRange,
        others: Sequence[Receipt],
        source: Cursor,
        target: RecordReader,
    ) -> None:
        """The chunks that were written without transactions, and what lies between them. Others have ``others``."""
        alone = claimed(receipt for receipt in others if receipt.proof is Proof.BY_TRANSACTION)
        retried = self.sides.view.retried_at(self.key, self.result.generation)
        DeliveryAudit(
            result=self.result,
            sides=self.sides,
            readable=self.readable or OffsetRange(0, 0),
            target_log=self.target_log,
            source=source,
            target=target,
        ).all(chosen, Coverage.of([window]).subtract(alone).subtract(retried))

    def _check_source(self) -> None:
        topic, ids = self.sides.source.get(self.key.source.topic), self.sides.view.positions[self.key].ids
        if topic is None or (self.sides.source_cluster, topic.topic_id) != (ids.source_cluster, ids.source_topic):
            self.result.notes.append(
                "the source topic is gone or was re-created: the target is compared with the receipts only"
            )
        elif self.key.source.partition in topic.partitions:
            source_offsets = topic.offsets(self.key.source.partition)
            self.readable = source_offsets.readable
            position = self.sides.view.positions[self.key]
            if source_offsets.last_stable < position.next_offset:  # what it holds above the cut may be other records
                refusal = refusals.truncated(self.key, position, source_offsets.last_stable)
                self.result.errors.append(f"{refusal.what}. Remedy: {refusal.remedy}")

    def _check_target(self) -> bool:
        topic, at = self.sides.target.get(self.key.target_topic), self.key.target
        if at in self.sides.failures:
            raise self.sides.failures[at]
        if topic is None or at not in self.sides.ends:
            raise _gone(at)
        self.target_log = self.sides.log(at) or self.target_log
        return True

    def _check_target_id(self) -> None:
        topic = self.sides.target.get(self.key.target_topic)
        if topic and topic.topic_id != self.sides.view.positions[self.key].ids.target_topic:
            self.result.notes.append("the target topic was re-created since the copy: its current content is compared")

    def _window(self, complete: bool) -> OffsetRange | None:
        """The target offsets to search for records of other writers: the whole log, or the requested chunks.

        With ``on_existing_target: append``, records before our first one may be older than the replication, and after a
        reset than its generation. If receipts have expired, records before the first chunk with a receipt belong to
        expired ones, because receipts and records have the same order.
        """
        at, position = self.key.target, self.sides.view.positions[self.key]
        if self.run.replication.placing.shared or at in self.read.extra or position.spread:
            return None  # others may write there, or it was read whole already
        if complete and self.run.replication.on_existing_target == "refuse" and position.generation == 1:
            if not self.some_expired:
                return self.target_log
            areas = [area for receipt in self.sides.receipts.all(self.key) if (area := area_of(receipt))]
            first = min((area.from_ for area in areas), default=self.target_log.until)
            return OffsetRange(first, MAX_OFFSET).intersection(self.target_log)
        areas = [area for receipt in self.chosen if (area := area_of(receipt))]
        if not areas:
            return None
        until = MAX_OFFSET if complete else max(area.until for area in areas)
        return OffsetRange(min(areas).from_, until).intersection(self.target_log)

    def _audit_unit(self, unit: Unit, source: Cursor, target: RecordReader) -> None:
        receipt = unit.receipt
        if receipt is None:
            area = unit.target.intersection(self.target_log) if unit.target else None
            records = target.seen(area) if area else iter(())
            self.result.differ(Difference(Kind.EXTRA, None, record.place, record.digest) for record in records)
            return
        self.result.chunks += 1
        try:
            total = digest_for(receipt)()
        except LedgerUnreadable as e:  # the chunk may be correct; this version cannot check it
            self.result.not_auditable(receipt, e)
            return
        there = self.readable and receipt.range.intersection(self.readable) == receipt.range
        if there and self.result.recomputes(receipt, self.sides.transform):
            try:
                self._by_content(receipt, total, source, target)
                return
            except SystemError:  # a header name that the client cannot decode: it was copied within its batch
                total = digest_for(receipt)()
        self.result.by_receipt += receipt.range.span
        for range_ in self._there(receipt):
            target.add_to(total, range_)
        if not equals(total, receipt):
            self.result.differ_by_receipt(receipt, total.count)

    def _there(self, receipt: Receipt) -> list[OffsetRange]:
        """The target offsets of the chunk that can be read."""
        ranges = (range_ for part in receipt.parts for range_ in part.offsets)
        return [there for range_ in ranges if (there := range_.intersection(self.target_log))]

    def _by_content(self, receipt: Receipt, total: Digest, source: Cursor, target: RecordReader) -> None:
        """Compare a chunk with what the source has there. Raises SystemError for a record that cannot be decoded."""
        change, aside = self.sides.change(self.key, receipt), set_aside(receipt)
        sent = source.sent(receipt.range, change=change, places=places(receipt.parts), without=aside)
        seen = chain.from_iterable(target.seen(range_, total) for range_ in self._there(receipt))
        matched = match(sent, seen, ordered=True)
        self.result.by_content += receipt.range.span
        self.result.differ_from_source(receipt, matched.differences(), intact=equals(total, receipt))

    def _written(self, receipt: Receipt, found: Iterable[Record]) -> Iterator[Record]:
        """The records that the copier wrote of these source records of a chunk."""
        change = self.sides.change(self.key, receipt)
        for record in found:
            self.result.source_records += 1
            yield from change(record) if change else (record,)
