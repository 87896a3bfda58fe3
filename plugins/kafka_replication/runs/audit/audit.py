"""Audit past ranges: read source and target once, on Spark or a small amount in this process.

No lease is taken, but to note what is missing on the target.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from kafka_replication.model.errors import BadInput, OutOfTime
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.times import now
from kafka_replication.reporting.audit import AuditReport
from kafka_replication.runs.audit.choosing import ALL, EVERYTHING, AuditRequest, choose
from kafka_replication.runs.audit.dividing import Divider
from kafka_replication.runs.audit.noting import note_missing
from kafka_replication.runs.audit.progress import Shown
from kafka_replication.runs.audit.sides import look
from kafka_replication.runs.audit.target_reading import plan_reading
from kafka_replication.runs.audit.unknown_partitions import unknown_to_ledger
from kafka_replication.runs.replicate.replicating import ROUNDS, job
from kafka_replication.runs.run import Run
from kafka_replication.spark.jobs import JobEnd
from kafka_replication.spark.launcher import Launcher
from kafka_replication.verification.auditing import Audit, Audited, Size

log = logging.getLogger(__name__)
__all__ = ["LEAST_FOR_SPARK", "AuditRequest", "audit"]
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
    if not keys and of_unknown:
        return AuditReport(
            run.replication.name, run.run_id, now(), of_unknown, sample=request.sample, promise=run.clusters.promise
        )
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
    read = _do(run, spark, reading.tasks, "target partitions")
    for task in reading.tasks:
        reading.take(task, read[task.id])

    divider = Divider(replication=run.replication, sides=sides, request=request, reading=reading)
    for one in chosen:
        divider.divide(one)
    done = _do(run, spark, divider.tasks, "partitions")
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
    return AuditReport(
        run.replication.name, run.run_id, now(), results, sample=request.sample, promise=run.clusters.promise
    )


def _do(run: Run, spark: Launcher | None, tasks: Sequence[Audit], what: str) -> dict[int, Audited]:
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
            from kafka_replication.spark.worker.audit import Auditor

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
