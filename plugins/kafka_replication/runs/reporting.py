"""The last step: report every range of the plan, and finish the run in the store.

Finds what a run may announce as verified.

The status of every partition of a replication: the ledger, both clusters and the store, read once.

Keeps the store's table of failed records: a copy of what the ledger says, which outlives the ledger's receipts.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from kafka_replication.documents import listed
from kafka_replication.kafka import topics
from kafka_replication.ledger.receipts import Receipts
from kafka_replication.ledger.view import LedgerView, weakest
from kafka_replication.model.choices import weakest_delivery
from kafka_replication.model.errors import NotAdmitted, ReplicationError, Unreachable
from kafka_replication.model.offsets import PartitionKey
from kafka_replication.model.times import now
from kafka_replication.model.trouble import Trouble
from kafka_replication.overview.rows import facts_of
from kafka_replication.planning import foresight
from kafka_replication.planning.followed_settings import differing
from kafka_replication.planning.live import as_compared, plan
from kafka_replication.planning.plan import Plan, may_go
from kafka_replication.planning.snapshot import Snapshot
from kafka_replication.planning.target_retention import removal_text
from kafka_replication.reporting import status as reporting
from kafka_replication.reporting.arithmetic import Evidence, NotDone, account
from kafka_replication.reporting.run import RunReport, VerifiedTopic, verified_topics
from kafka_replication.reporting.status import PartitionStatus
from kafka_replication.runs import previewing
from kafka_replication.runs.run import LeasedRun, Run
from kafka_replication.watermarks.failed import FailedRow, rows_of
from kafka_replication.watermarks.sight import Work
from kafka_replication.watermarks.values import SEALED, RangeOutcome, RunRecord

log = logging.getLogger(__name__)

DIED: Final = "died"
ENDED_BADLY: Final = frozenset({"failed", DIED})
MOST: Final = 50  # runs that are looked through for those that failed since the last good one


def verified_now(run: LeasedRun, plan: Plan, report: RunReport) -> list[VerifiedTopic]:
    """The topics that this run has verified, with what failed runs of its kind have verified just before it, and could
    not announce. None if a range of this run failed.

    Raises Unreachable.
    """
    if report.failed:
        return []
    own = run.store.run(run.run_id)
    before: list[RunRecord] = []
    for _, record in run.store.runs_before(run.replication.name, None, MOST) if own else ():
        if own is None or record.run_id == run.run_id or record.kind != own.kind:
            continue
        if record.state in ENDED_BADLY:
            before.append(record)
        elif record.finished_at is not None and record.state != SEALED:
            break
    return verified_topics(
        report,
        [outcome for record in reversed(before) for outcome in run.store.outcomes(record.run_id)],
        died={record.run_id for record in before if record.state == DIED},
        planned={planned.key.target_topic for planned in plan.partitions},
    )


def standing(run: Run, take: Callable[[Run, LedgerView], Snapshot] = Run.snapshot) -> list[PartitionStatus]:
    """One row for each partition. ``take`` takes the snapshot of both clusters.

    Only for partitions that are behind it reads one record of the source, to see how old that is, and asks how many are
    near the end of their retention; and one of the target for those that were not opened. Raises Unreachable, BadInput,
    Refused.
    """
    view = run.view()
    snapshot = take(run, view)
    planned = plan(run.replication, snapshot, view, run.watermarks(view))
    losses = previewing.source_losses(run, foresight.waiting(run.replication, planned, snapshot, view))
    settings = differing(run.replication, snapshot)
    rows = reporting.status(previewing.without_occupied(run, planned, snapshot, view), snapshot, view, losses, settings)
    return reporting.with_times(rows, previewing.times(run, reporting.behind(rows)), datetime.now(UTC))


def without_target(run: Run, problem: Trouble) -> list[PartitionStatus]:
    """The status by the store and, if it answers, the source, while the target does not answer because of ``problem``.

    One row for each watermark; none if the store has none.
    """
    watermarks = run.store.watermarks(run.replication.name)
    try:
        source = topics.describe(run.clusters.source_admin, {key.source.topic for key in watermarks}).topics
        losses = previewing.source_losses(run, list(foresight.unverified(run.replication, watermarks.values(), source)))
    except (Unreachable, NotAdmitted):
        source, losses = {}, {}
    return [
        reporting.from_watermark(watermark, source.get(key.source.topic), problem, losses.get(key))
        for key, watermark in sorted(watermarks.items())
    ]


def note(run: Run, view: LedgerView, receipts: Receipts, keys: Collection[PartitionKey]) -> None:
    """Write to the store what these receipts say of failed records. The store joins it with its rows."""
    store(run, [row for key in keys for row in rows_of(view, key, receipts).values()])


def store(run: Run, rows: Iterable[FailedRow]) -> None:
    """Write these rows to the store, without those that it would delete soon, or has deleted."""
    seconds = run.replication.retention.history
    run.store.record_failed([row for row in rows if row.is_kept(seconds)])


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
        not_advanced=dict(not_done.not_advanced),
        turns=dict(not_done.turns),
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
        adopted=sum(p.key in view.positions and view.positions[p.key].adopted is not None for p in plan.partitions),
        promise=run.clusters.promise,
        delivery=weakest_delivery(view.of(p.key, p.generation).verified.delivery for p in plan.partitions),
    )
    _store(run, document, SEALED if plan.is_sealed else document.outcome)
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


def _store(run: LeasedRun, document: RunReport, state: str) -> None:
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
    ended = run.store.finish_run(run.run_id, state)
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
