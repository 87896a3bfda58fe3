"""The plan of a data interval. With ``progress: interval``, each run copies one data interval."""

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
    """The plan of a data interval: for each partition the offsets between two boundaries, which are resolved once and
    stored.

    Raises PreflightFailed, or Refused, which names every refused partition.
    """
    run.check_pipeline()
    steps.fence_stale_producers(run)
    known, outdated = preparing.planned_before(run)
    if known is not None:
        return known
    view = run.view()
    snapshot = run.snapshot(view)
    preparing.raise_all_findings(preparing.findings(run, view, snapshot))
    run.clusters.ledger.ensure(run.replication)
    snapshot = create_targets(run, view, snapshot, Request())
    _refuse_vanished(run, snapshot, view)
    ranges = _interval(run, snapshot, own(run.replication, view), start, end)

    def planned(view: LedgerView) -> BackfillPlan:
        return plan_backfill(
            BackfillInput(
                replication=run.replication,
                snapshot=snapshot,
                ledger=view,
                watermarks=run.watermarks(view),
                live=Plan(run.replication.name, ()),
            ),
            ranges,
            opens=True,
        )

    backfill_plan = planned(open_new(run, view, planned(view)))
    backfill_plan.raise_refused()
    log.info("data interval [%s, %s)", start.isoformat(), end.isoformat())
    return store(run, "interval", backfill_plan, outdated)


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
        at: snapshot.source[at.topic].offsets(at.partition).log_start for at in keys if known and at not in known
    }
    newest = run.store.newest_boundary(run.replication.name) or start

    def store_boundaries(moment: datetime, resolved: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        # A partition that appeared later is copied from its log start, by a later run.
        if moment <= max(start, newest):
            resolved = {**resolved, **appeared}
        copied = {
            at: known[at].end_before(offset) for at, offset in resolved.items() if moment == start and at in known
        }
        stored = run.store.store_boundaries(
            run.replication.name,
            moment,
            {keys[at]: offset for at, offset in resolved.items()},
            {keys[at]: offset for at, offset in copied.items()},
        )
        return {key.at: offset for key, offset in stored.items()}

    froms, untils = (
        store_boundaries(moment, offsets.at_time(run.clusters.source_admin, keys, ceil_millis(moment)))
        for moment in (start, end)
    )
    if newest > end:
        store_boundaries(newest, appeared)
    return {at: OffsetRange(froms[at], untils[at]) for at in keys}


def _refuse_vanished(run: Run, snapshot: Snapshot, view: LedgerView) -> None:
    """Raise Refused for topics that are gone: an interval is copied once, so their records would be in no interval."""
    gone = [
        planned
        for planned in plan(run.replication, snapshot, view, run.watermarks(view)).partitions
        if planned.state in (State.VANISHED, State.DELETED)
    ]
    if gone:
        what = "; ".join(f"{planned.key.source}: the source topic or partition is gone" for planned in gone)
        raise Refused(what, f"grant Describe on it, or exclude {gone[0].key.source.topic} if that is intended")
