"""The last step: report every range of the plan, and finish the run in the store."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping

from kafka_replication.documents import listed
from kafka_replication.ledger.view import LedgerView, weakest
from kafka_replication.model.delivery import weakest_delivery
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.times import now
from kafka_replication.overview.rows import facts_of
from kafka_replication.planning.live import as_compared
from kafka_replication.planning.plan import Plan
from kafka_replication.planning.retention.old_receipts import may_go
from kafka_replication.planning.retention.target_retention import removal_text
from kafka_replication.reporting.run.arithmetic import Evidence, NotDone, account
from kafka_replication.reporting.run.report import RunReport
from kafka_replication.runs.replicate.failed_records import note
from kafka_replication.runs.run import LeasedRun
from kafka_replication.watermarks.sight import Work
from kafka_replication.watermarks.values import RangeOutcome, RunRecord

log = logging.getLogger(__name__)


def report(run: LeasedRun, plan: Plan, not_done: NotDone) -> RunReport:
    """Compute the report of every range from the ledger, store the outcomes, and finish the run in the store."""
    outcomes = {(outcome.key, outcome.range): outcome for outcome in run.store.outcomes(run.run_id)}
    patience = run.patience_after_failure if not_done.not_verified or _has_failed(plan, outcomes.values()) else math.inf
    view = run.retry("reading the ledger", run.view, patience)
    view = _as_it_is(run, plan, view)
    known = [p for p in plan.to_account_for if p.key in view.positions]
    wanted = {p.key: plan.receipts_from.get(p.key.ledger_partition) for p in known}
    read = run.retry("reading receipts", lambda: run.clusters.ledger.receipts(wanted), patience)
    evidence = Evidence(
        run_id=run.run_id,
        level=run.replication.verify.level,
        plan=plan,
        view=view,
        watermarks=run.watermarks(view),
        receipts={p.key: read.of(p.key, p.generation) for p in known},
        outcomes=outcomes,
        not_verified={result.key: result for result in not_done.not_verified},
        not_advanced={reason.key: reason for reason in not_done.not_advanced},
        turns={one.key: one.turns for one in not_done.turns},
        foreign=_foreign(run, plan, view),
    )
    document = RunReport(
        replication=run.replication.name,
        run_id=run.run_id,
        ranges=account(evidence),
        gaps=listed(view.gaps),
        removed=tuple(
            removal_text(p.key, gone, view[p.key].missed())
            for p in plan.partitions
            if p.key in view.positions and (gone := view[p.key].gone())
        ),
        level=weakest(view.of(p.key, p.generation).level for p in plan.partitions if p.key in view.positions),
        notes=plan.notes,
        promise=run.clusters.promise,
        delivery=weakest_delivery(view.of(p.key, p.generation).verified.delivery for p in plan.partitions),
    )
    _store(run, document)
    note(run, view, read, list(wanted))
    _expire(run, view)
    return document


def _expire(run: LeasedRun, view: LedgerView) -> None:
    """Delete old receipts where the target does not do that by itself."""
    name, seconds = run.replication.name, run.replication.retention.receipts
    try:
        if deleted := run.clusters.ledger.expire(may_go(view, now(seconds))):
            log.info("%s: %d receipts are older than retention.receipts and were deleted", name, deleted)
    except ReplicationError as error:  # a later run deletes them
        log.warning("%s: old receipts were not deleted: %s", name, error)


def _as_it_is(run: LeasedRun, plan: Plan, view: LedgerView) -> LedgerView:
    """The ledger with what is gone from the target now. Where all is verified, the plan knew it."""
    if not any(view[p.key].pending() for p in plan.to_account_for if p.key in view.positions):
        return view
    try:
        return as_compared(view, run.snapshot(view))
    except ReplicationError as error:  # the next run looks again
        log.warning("%s: what is gone from the target was not found out: %s", run.replication.name, error)
        return view


def _foreign(run: LeasedRun, plan: Plan, view: LedgerView) -> Mapping[PartitionKey, int]:
    """Records of others behind ours that came during this run. What was there before is in the plan."""
    keys = [p.key for p in plan.partitions if (p.copy or p.verify) and p.key in view.positions]
    try:
        return run.comparison.foreign_now(view, keys) if keys else {}
    except ReplicationError as error:  # the next run looks again, before it copies
        log.warning("%s: whether others wrote to the target was not found out: %s", run.replication.name, error)
        return {}


def _has_failed(plan: Plan, outcomes: Collection[RangeOutcome]) -> bool:
    """True if a range failed, or a planned one has no outcome: the run ended before it."""
    known = {outcome.key for outcome in outcomes}
    return any(outcome.error for outcome in outcomes) or any(planned.key not in known for planned in plan.to_copy)


def _store(run: LeasedRun, document: RunReport) -> None:
    if run.store.run(run.run_id) is None:
        return
    outcomes = [
        RangeOutcome(
            run_id=run.run_id,
            key=line.key,
            range=line.range,
            copied=line.copied,
            not_visible=line.not_visible,
            digest_ok=line.digest_ok,
            level=run.replication.verify.level,
            watermark=line.watermark,
            error=line.error,
            remedy=line.remedy or None,
            seconds=line.seconds,
            bytes=line.bytes,
        )
        for line in document.ranges
    ]
    run.store.record_outcomes(outcomes)
    ended = run.store.finish_run(run.run_id, document.outcome)
    try:
        run.store.record_work(run.replication.name, facts_of(run.replication), _work(ended, document))
        run.store.prune(run.replication.name, run.replication.retention.history)
    except ReplicationError as problem:  # this run is finished; the next one deletes old rows
        log.warning(
            "%s: what the page shows of this run was not stored, or old rows of the store were not deleted: %s",
            run.replication.name,
            problem,
        )


def _work(ended: RunRecord, document: RunReport) -> Work:
    """The records and bytes that the run copied, and the time from its plan to its end."""
    at = ended.finished_at or ended.created_at
    return Work(
        run_id=ended.run_id,
        records=sum(line.copied for line in document.ranges),
        bytes=sum(line.bytes for line in document.ranges),
        seconds=(at - ended.created_at).total_seconds(),
        at=at,
    )
