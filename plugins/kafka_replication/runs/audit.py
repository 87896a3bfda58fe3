"""Audit past ranges: read source and target once, on Spark or a small amount in this process.

No lease is taken, but to note what is missing on the target.

Notes in the ledger what an audit has found missing in the middle of a target partition, so that a backfill copies it
again. Under a lease, and in what the target shows then.

Shows the progress of an audit, each time that results come.

Audits partitions that were copied, and that the ledger does not know any more.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

from kafka_replication.ledger.entries import Position, Receipt
from kafka_replication.ledger.receipts import Receipts
from kafka_replication.ledger.values import Proof
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.choices import EXACTLY_ONCE, TRANSACTIONAL
from kafka_replication.model.errors import BadInput, OutOfTime, ReplicationError
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey
from kafka_replication.model.times import now
from kafka_replication.planning import refusals
from kafka_replication.planning.snapshot import Topic
from kafka_replication.reporting.audit import AuditReport, PartitionAudit
from kafka_replication.reporting.progress import Counts, Speed
from kafka_replication.runs.audit_choosing import ALL, EVERYTHING, AuditRequest, choose, look
from kafka_replication.runs.audit_tasks import Divider, plan_reading
from kafka_replication.runs.leasing import leased
from kafka_replication.runs.replicating import ROUNDS, job
from kafka_replication.runs.run import LeasedRun, Run
from kafka_replication.runtime.events import Event, log_event
from kafka_replication.spark.jobs import JobEnd
from kafka_replication.spark.launcher import Launcher
from kafka_replication.verification.auditing import Audit, Audited, Size
from kafka_replication.verification.matching import Kind
from kafka_replication.watermarks.values import Scope, TargetTopics

log = logging.getLogger(__name__)


def note_missing(run: Run, results: Collection[PartitionAudit], target: Mapping[str, Topic]) -> None:
    """Note what these results say is missing, and in each result what was noted, or why nothing was.

    Only where target, file and receipts say `exactly_once`, and not in compacted topics: there an older value
    would come to lie behind a newer one of its key.
    """
    kept = {name for name, topic in target.items() if "compact" not in topic.config.get("cleanup.policy", "")}
    found = {one.key: one for one in results if one.lacking and one.key.target_topic in kept}
    proven = run.clusters.promise == TRANSACTIONAL and run.replication.delivery == EXACTLY_ONCE
    if not found or not proven or run.replication.placing.shared:
        return
    try:
        scope = Scope.exactly(TargetTopics.of({key.target_topic for key in found}))
        with leased(run, scope) as leased_run:
            noted = leased_run.again_if_fenced("noting what is missing", lambda: _note(leased_run, found))
    except ReplicationError as error:
        log.warning("what is missing on the target was not noted: %s", error)
        for result in found.values():
            result.note(f"what is missing was not noted for a backfill: {error.what}. Audit again")
        return
    for key, offsets in noted.items():
        found[key].note(f"{offsets} are noted as gone from the target: status has the command that copies them again")


def _note(run: LeasedRun, found: Mapping[PartitionKey, PartitionAudit]) -> dict[PartitionKey, Coverage]:
    """The offsets of each partition that are noted now."""
    with closing(run.opening()) as opening:
        view = opening.fence()
        run.check()
        receipts = run.clusters.ledger.receipts(dict.fromkeys(found))
        noted = {key: offsets for key, result in found.items() if (offsets := _missing(run, view, receipts, result))}
        new = [
            (key, replace(entry, lost_above_start=entry.lost_above_start.union(offsets), run_id=run.run_id, time=now()))
            for key, offsets in noted.items()
            if offsets.subtract((entry := view[key].removed).lost_above_start)
        ]
        opening.commit({}, {}, new)
    for key, entry in new:
        log.info("%s: no longer on the target, found by an audit: %s", key, entry.lost_above_start)
    return noted


def _missing(run: LeasedRun, view: LedgerView, receipts: Receipts, result: PartitionAudit) -> Coverage:
    position = view.position(result.key, result.generation)
    if position is None or position.delivery != EXACTLY_ONCE:
        return Coverage()
    lacking = set(result.lacking)
    single = (one.source for one in result.single if one.kind is Kind.MISSING and one.source is not None)
    records = Coverage.of(OffsetRange(offset, offset + 1) for offset in single)
    missing = Coverage.of(
        range_
        for receipt in receipts.of(result.key, result.generation)
        if receipt.range in lacking
        for range_ in _missing_of(run, position, receipt, result.key, records)
    )
    return missing.intersection(position.coverage).subtract(view[result.key].removed.coverage)


def _missing_of(
    run: LeasedRun, position: Position, receipt: Receipt, key: PartitionKey, records: Coverage
) -> Iterable[OffsetRange]:
    """The source offsets of the chunk of which the target has nothing, if it stands between others there: all of them,
    or those of ``records``, which were found one by one.
    """
    kept = receipt.delivery == EXACTLY_ONCE and receipt.proof is not Proof.BY_KEY and receipt.ids == position.ids
    if not kept or receipt.interleaved or [part.partition for part in receipt.parts] != [key.target.partition]:
        return ()
    (part,) = receipt.parts
    standing, area = run.clusters.target.standing, OffsetRange(part.first, part.until)
    there = standing.logs([key.target]).get(key.target)
    if there is None or area.intersection(there) != area:
        return ()
    return records.within(receipt.range) if standing.first_record(key.target, area) is not None else (receipt.range,)


LOG_EVERY = 10.0  # seconds


class Shown:
    """The progress over these tasks. ``what`` names their partitions."""

    def __init__(self, run: Run, tasks: Sequence[Audit], what: str) -> None:
        self._run, self._what = run, what
        self._tasks = {task.id: task for task in tasks}
        self._left = Counter(task.partition for task in tasks)
        self._partitions = len(self._left)
        self._offsets = sum(map(_weight, tasks))
        self._done, self._weight = Size(), 0
        self._pace = Speed(time.monotonic(), 0)
        self._said = time.monotonic()

    def done(self, ids: Iterable[int]) -> None:
        """These tasks have a result."""
        for task in (self._tasks[id_] for id_ in ids):
            self._left -= Counter([task.partition])
            self._done += task.size
            self._weight += _weight(task)
        moment = time.monotonic()
        counts = Counts(
            ranges=self._partitions,
            ranges_done=self._partitions - len(self._left),
            offsets=self._offsets,
            offsets_done=self._weight,
        )
        progress = self._pace.progress(moment, counts, self._done.records, self._done.bytes)
        if self._run.show is not None:
            self._run.show(progress)
        elif moment - self._said >= LOG_EVERY or not self._left:
            self._said = moment
            log_event(
                log,
                logging.INFO,
                Event.PROGRESS,
                "%s: audit of %s: %s",
                self._run.replication.name,
                self._what,
                progress,
            )


def _weight(task: Audit) -> int:
    """Its share of the whole: no task is nothing."""
    return max(1, task.size.offsets)


def unknown_to_ledger(run: Run, view: LedgerView) -> Mapping[PartitionKey, PartitionAudit]:
    """The partitions that have a watermark in the store and no position, each with an error that says what stands on
    the target. Nothing can be compared there: nothing says which records of the target are ours.
    """
    marks = run.store.watermarks(run.replication.name)
    unknown = {key: mark for key, mark in marks.items() if key not in view.positions}
    logs = run.clusters.target.standing.logs({key.target for key in unknown})  # without those that do not answer
    results = dict[PartitionKey, PartitionAudit]()
    for key, mark in sorted(unknown.items()):
        refusal, there = refusals.ledger_lost(key, mark.offset), logs.get(key.target)
        standing = f"{key.target} on the target holds offsets {there}, and nothing says which of them are ours"
        if there is None:
            standing = f"{key.target} on the target is gone or does not answer"
        elif not there.span:
            standing = f"{key.target} on the target is empty"
        results[key] = PartitionAudit(key=key, generation=mark.generation, range=OffsetRange(0, 0))
        results[key].errors.append(f"{refusal.what}; {standing}. Remedy: {refusal.remedy}")
    return results


__all__ = ["LEAST_FOR_SPARK", "AuditRequest", "audit", "work_on"]
# The amount from which on Spark is faster, whose start takes as long as reading this much: see docs/gaps-and-audit.md.
LEAST_FOR_SPARK = Size(records=1_000_000, bytes=256 << 20)


def audit(
    run: Run,
    request: AuditRequest = ALL,
    spark: Launcher | None = None,
    *,
    least: Size = LEAST_FOR_SPARK,
) -> AuditReport:
    """Audit the requested partitions. Raises BadInput if nothing was copied, Unreachable, and the errors of a launcher
    that does not start.

    What has the ``least`` records or bytes is audited on ``spark``, anything else in this process, as everything is
    without Spark.
    """
    keys = sorted(key for key in run.view().positions if request.asks_for(key))
    unknown = unknown_to_ledger(run, run.view())
    of_unknown = tuple(result for key, result in unknown.items() if request.asks_for(key))
    promise = run.clusters.promise
    if not keys and of_unknown:
        return AuditReport(run.replication.name, run.run_id, now(), of_unknown, sample=request.sample, promise=promise)
    if not keys:
        raise BadInput(
            f"{run.replication.name} never copied {request.topic or 'anything'}", "check --topic and --partition"
        )
    sides = look(run, keys)
    if request.range != EVERYTHING and not any(
        sides.view.positions[key].coverage.within(request.range) for key in keys
    ):
        raise BadInput(f"nothing of {request.range} was copied", "kafka-replication ledger lists what was copied")
    chosen = [choose(run.replication, sides, key, request) for key in keys]
    size = sum((Size.of(receipt) for one in chosen for receipt in one.receipts), Size())
    is_large = size.records >= least.records or size.bytes >= least.bytes
    spark = spark if is_large else None

    reading = plan_reading(run.replication, sides, chosen, request)
    read = work_on(run, spark, reading.tasks, "target partitions")
    for task in reading.tasks:
        reading.take(task, read[task.id])

    divider = Divider(replication=run.replication, sides=sides, request=request, reading=reading)
    for one in chosen:
        divider.divide(one)
    done = work_on(run, spark, divider.tasks, "partitions")
    by_key = {one.key: one for one in chosen}
    for part in divider.tasks:
        assert isinstance(part.partition, PartitionKey)
        by_key[part.partition].result.add(done[part.id].findings)
    for one in chosen:
        reading.report_extra(one.result, sides.view.positions)
        one.result.finish()
        log.info("audited %s %s: %s", one.key, one.result.range, one.result.outcome)
    note_missing(run, [one.result for one in chosen], sides.target)
    results = (*(one.result for one in chosen), *of_unknown)
    return AuditReport(run.replication.name, run.run_id, now(), results, sample=request.sample, promise=promise)


def work_on(run: Run, spark: Launcher | None, tasks: Sequence[Audit], what: str) -> dict[int, Audited]:
    """The result of each task, by its id. One that nobody could work on has an error. Spark works on them; in this
    process, one after the other, without it.
    """
    results = dict[int, Audited]()
    if not tasks:
        return results
    shown = Shown(run, tasks, what)

    def take(some: Sequence[Audited]) -> None:
        new = {result.id: result for result in some if result.id not in results}
        results.update(new)
        shown.done(new)

    end = JobEnd()
    for _ in range(ROUNDS):
        left = sorted((task for task in tasks if task.id not in results), key=lambda task: -task.size.offsets)
        if not left or (end.error and not end.retriable):
            break
        work = job(run, audits=left)
        if spark is None:
            from kafka_replication.spark.worker import Auditor

            auditor, end = Auditor(work), JobEnd()
            for task in left:
                take([auditor.work(task)])
        else:
            try:
                end = spark.submit(work, take)
            except OutOfTime as error:
                end = JobEnd(error=error.what, remedy=error.remedy, retriable=False)
    for task in tasks:
        if task.id not in results:
            take([task.died(end.error or "Spark returned no result", end.remedy or "audit again")])
    return results
