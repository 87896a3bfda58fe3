"""The step that copies: submit the planned ranges to Spark, then read from the ledger what was copied."""

from __future__ import annotations

import logging
from dataclasses import replace

from kafka_replication.copying.engine import CopyResult, CopyTask
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import BadInput
from kafka_replication.model.keys import PartitionKey
from kafka_replication.planning.plan import PartitionPlan, Plan
from kafka_replication.runs.run import LeasedRun
from kafka_replication.runs.steps.fencing import fence_stale_producers
from kafka_replication.runs.steps.job import job_of
from kafka_replication.runtime.events import Event, log_event
from kafka_replication.spark.jobs import JobResult
from kafka_replication.spark.launcher import Launcher
from kafka_replication.watermarks.values import RangeOutcome

log = logging.getLogger(__name__)


def copy(run: LeasedRun, plan: Plan, spark: Launcher) -> JobResult:
    """Copy every planned range that is not on the target yet, in at most ``copy.rounds`` jobs, while this run has the
    lease.

    A further round copies ranges that were fenced or whose Spark task died. The copier itself retries all other
    retriable errors.
    """
    done: dict[PartitionKey, CopyResult] = {}
    left, last = list(plan.to_copy), JobResult()
    view = run.retry("reading the ledger", run.view) if left else LedgerView()
    for round_ in range(run.replication.copying.rounds):
        left = _not_on_target(left, view)
        if not left:
            break
        run.check()
        run.deadline.check(f"{plan.replication}: copying")
        log_event(log, logging.INFO, Event.COPY_ROUND_STARTED, "copying %d ranges, round %d", len(left), round_ + 1)
        last = spark.submit(job_of(run, "copy", copies=[_task(run, planned) for planned in left]))
        view = run.retry("reading the ledger", lambda: _fence_and_read(run))
        done.update({result.key: result for result in last.copies})
        left = _to_repeat(left, last)
        if not (left and last.retriable):
            break
    return replace(last, copies=_record(run, plan, view, done, last))


def _fence_and_read(run: LeasedRun) -> LedgerView:
    """Fence the producers that dead workers left with an open transaction, then read the ledger."""
    fence_stale_producers(run)
    return run.view()


def _not_on_target(planned: list[PartitionPlan], view: LedgerView) -> list[PartitionPlan]:
    return [p for p in planned if p.copy and p.key in view.positions and view.positions[p.key].left_of(p.copy)]


def _to_repeat(submitted: list[PartitionPlan], result: JobResult) -> list[PartitionPlan]:
    """The ranges for the next round: fenced ones and, after a failed job, those without a result."""
    fenced = {outcome.key for outcome in result.copies if outcome.fenced}
    answered = {outcome.key for outcome in result.copies}
    return [p for p in submitted if p.key in fenced or (result.error and p.key not in answered)]


def _task(run: LeasedRun, planned: PartitionPlan) -> CopyTask:
    assert planned.copy is not None
    return CopyTask(
        key=planned.key,
        range=planned.copy,
        ids=planned.ids,
        generation=planned.generation,
        run_id=run.run_id,
        position=planned.position,
    )


def _record(
    run: LeasedRun, plan: Plan, view: LedgerView, done: dict[PartitionKey, CopyResult], last: JobResult
) -> list[CopyResult]:
    """Store the outcome of each range. A range that the ledger does not cover has failed, whatever Spark reported."""
    results = [_judge(planned, view, done.get(planned.key), last) for planned in plan.to_copy]
    outcomes = [
        RangeOutcome(
            run_id=run.run_id,
            key=result.key,
            range=result.range,
            error=result.error,
            remedy=result.remedy or None,
            seconds=result.seconds,
            bytes=result.bytes,
        )
        for result in results
    ]
    try:
        run.store.record_outcomes(outcomes)
    except BadInput:
        # Another store has replaced ours. If another run has the lease there, report that instead.
        run.check()
        raise
    return results


def _judge(planned: PartitionPlan, view: LedgerView, result: CopyResult | None, last: JobResult) -> CopyResult:
    assert planned.copy is not None
    result = result or CopyResult(key=planned.key, range=planned.copy)
    position = view.position(planned.key, planned.generation)
    left = position.left_of(planned.copy) if position else (planned.copy,)
    if not left:
        return replace(result, error=None, remedy="")
    if result.error:
        return result
    what = last.error or f"not copied: {', '.join(map(str, left))}"
    return replace(result, error=what, remedy=last.remedy or "run again", retriable=last.retriable)
