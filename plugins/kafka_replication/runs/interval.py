"""The plan of a data interval: a replication with ``progress: interval`` copies one of them in each run."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime

from kafka_replication.kafka import offsets
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import Refused
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.model.times import ceil_millis
from kafka_replication.planning.backfill import (
    BackfillInput,
    BackfillPlan,
    plan_backfill,
)
from kafka_replication.planning.live import own, plan
from kafka_replication.planning.plan import Plan, State
from kafka_replication.planning.snapshot import Snapshot
from kafka_replication.runs import steps
from kafka_replication.runs.backfill import open_new, store
from kafka_replication.runs.run import LeasedRun, Request, Run
from kafka_replication.runs.steps import preparing
from kafka_replication.runs.steps.target_topics import create_targets
from kafka_replication.watermarks.boundaries import BoundaryKey

log = logging.getLogger(__name__)


def prepare_interval(run: LeasedRun, start: datetime, end: datetime) -> Plan:
    """The plan of a data interval: per partition what lies between its two boundaries, each resolved once and stored.

    Raises PreflightFailed, Refused naming every partition that cannot be
    done.
    """
    steps.fence_stale_producers(run)
    known, over = preparing.planned_before(run)
    if known is not None:
        return known
    view = run.view()
    snapshot = run.snapshot(view)
    preparing.raise_findings(preparing.findings(run, view, snapshot))
    run.clusters.ledger.ensure(run.replication)
    snapshot = create_targets(run, view, snapshot, Request())
    _refuse_vanished(run, snapshot, view)
    asked = _interval(run, snapshot, own(run.replication, view), start, end)

    def planned(view: LedgerView) -> BackfillPlan:
        return plan_backfill(
            BackfillInput(
                replication=run.replication,
                snapshot=snapshot,
                ledger=view,
                watermarks=run.watermarks(view),
                live=Plan(run.replication.name, ()),
            ),
            asked,
            opens=True,
        )

    made = planned(open_new(run, view, planned(view)))
    made.raise_refused()
    log.info("data interval [%s, %s)", start.isoformat(), end.isoformat())
    return store(run, "interval", made, over)


def _interval(
    run: LeasedRun, snapshot: Snapshot, view: LedgerView, start: datetime, end: datetime
) -> dict[TopicPartition, OffsetRange]:
    every = [
        (TopicPartition(name, number), topic.topic_id)
        for name, topic in snapshot.source.items()
        for number in topic.partitions
    ]
    keys = {at: BoundaryKey(at, topic_id) for at, topic_id in every}
    known = {key.source: position.coverage for key, position in view.positions.items()}
    appeared = {
        at: snapshot.source[at.topic].partitions[at.partition].log_start for at in keys if known and at not in known
    }
    newest = run.store.newest_boundary(run.replication.name) or start

    def verified_or_waived(moment: datetime, found: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        if moment <= max(
            start, newest
        ):  # what appeared after the replication began is copied from its beginning, by a run yet to come
            found = {**found, **appeared}
        copied = {at: known[at].end_before(offset) for at, offset in found.items() if moment == start and at in known}
        stored = run.store.store_boundaries(
            run.replication.name,
            moment,
            {keys[at]: offset for at, offset in found.items()},
            {keys[at]: offset for at, offset in copied.items()},
        )
        return {key.at: offset for key, offset in stored.items()}

    froms, untils = (
        verified_or_waived(moment, offsets.at_time(run.clusters.source_admin, keys, ceil_millis(moment)))
        for moment in (start, end)
    )
    if newest > end:
        verified_or_waived(newest, appeared)
    return {at: OffsetRange(froms[at], untils[at]) for at in keys}


def _refuse_vanished(run: Run, snapshot: Snapshot, view: LedgerView) -> None:
    """An interval is copied once: what cannot be seen now would be in none."""
    gone = [
        each
        for each in plan(run.replication, snapshot, view, run.watermarks(view)).refused
        if each.state is State.VANISHED
    ]
    if gone:
        raise Refused("; ".join(each.what for each in gone), f"grant Describe on it, or {gone[0].remedy}")
