"""A backfill, put together: plan a range, copy what of it is not on the target in bounded slices, verify, report.

The command line and the backfill DAG call these. Everything that copies, verifies and advances is `steps`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from kafka_replication.config import Replication
from kafka_replication.connections.port import Connections
from kafka_replication.kafka import offsets, topics
from kafka_replication.kafka.sampling import samples
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import BadInput, Refused
from kafka_replication.model.keys import consumer_group
from kafka_replication.model.times import ceil_millis
from kafka_replication.planning import preflight
from kafka_replication.planning.backfill import (
    BackfillInput,
    BackfillPlan,
    one_topic,
    partitions_of,
    plan_backfill,
    resolve,
)
from kafka_replication.planning.backfill_request import BackfillRequest
from kafka_replication.planning.live import plan
from kafka_replication.planning.plan import Plan, State
from kafka_replication.planning.snapshot import Snapshot
from kafka_replication.reporting.backfill import plan_table
from kafka_replication.reporting.report import RunReport
from kafka_replication.runs import steps
from kafka_replication.runs.leasing import leased
from kafka_replication.runs.run import LeasedRun, Request, Run, open_run
from kafka_replication.runs.runner import new_run_id
from kafka_replication.runs.slices import copy_slices
from kafka_replication.runs.steps import preparing
from kafka_replication.runs.steps.target_topics import create_targets
from kafka_replication.runtime.deadline import Deadline
from kafka_replication.spark.launcher import Launcher, OnDemand
from kafka_replication.watermarks.store import WatermarkStore

log = logging.getLogger(__name__)
KIND = "backfill"


def run(
    replication: Replication,
    connections: Connections,
    store: WatermarkStore,
    launcher: Callable[[], Launcher],
    request: BackfillRequest,
) -> RunReport:
    """All of a backfill with an id and a time budget of its own; see `execute`."""
    deadline = Deadline.after(replication.timeouts.run)
    return execute(open_run(replication, connections, store, new_run_id(), deadline), launcher, request)


def execute(run: Run, launcher: Callable[[], Launcher], request: BackfillRequest) -> RunReport:
    """All of a backfill, under the replication's lease. Where there is nothing to do no launcher is asked for."""
    with leased(run) as this:
        made = prepare(this, request)
        with OnDemand(launcher) as spark:
            verified = [] if made.idle else copy_slices(this, made, spark).not_verified
        steps.advance(this, [each.key for each in made.partitions])
        return steps.report(this, made, verified)


def preview(run: Run, request: BackfillRequest) -> BackfillPlan:
    """What the backfill would mean, without touching anything. Raises BadInput, PreflightFailed."""
    this = run.of(one_topic(run.replication, request))
    _check_topics(run, request)
    view = run.view()
    only = Request(topics=request.topics)
    snapshot = this.snapshot(view, only)
    preparing.raise_findings(preflight.check(this.replication, snapshot, known=True))
    live = (
        Plan(run.replication.name, ())
        if request.target_topic
        else plan(run.replication, snapshot, view, run.watermarks(view))
    )
    return _estimated(this, _planned(this, request, snapshot, view, live))


def prepare(run: LeasedRun, request: BackfillRequest) -> Plan:
    """The plan, stored with the run, after opening what was never opened. The stored one, if there is one.

    Raises BadInput, PreflightFailed, Refused naming every partition that
    cannot be done.
    """
    steps.fence_stale_producers(run)
    known, over = preparing.planned_before(run)
    if known is not None:
        return known
    seen = preview(run, request)
    seen.raise_refused()
    if seen.plan.idle:  # nothing is created or opened for nothing
        return store(run, KIND, seen, over)
    this, only = run.of(one_topic(run.replication, request)), Request(topics=request.topics)
    if request.target_topic is None:
        snapshot, view, live = preparing.begin(run, only)
    else:
        run.clusters.ledger.ensure(run.replication)
        view, live = run.view(), Plan(run.replication.name, ())
        snapshot = create_targets(this, view, this.snapshot(view, only), only)
        view = open_new(this, view, _planned(this, request, snapshot, view, live))
    made = _planned(this, request, snapshot, view, live)
    made.raise_refused()
    return store(run, KIND, _estimated(this, made), over)


def store(run: LeasedRun, kind: str, made: BackfillPlan, over: str | None) -> Plan:
    log.info("plan of %s run %s:\n%s", kind, run.run_id, plan_table(made))
    return preparing.store_plan(run, kind, made.plan, over)


def _check_topics(run: Run, request: BackfillRequest) -> None:
    names, replication = set(topics.names(run.clusters.source_admin)), run.replication
    missing = sorted(set(request.topics) - names)
    if missing:
        raise BadInput(
            f"topic: {', '.join(map(repr, missing))} does not exist on the source",
            "correct it, or grant Describe on it",
        )
    taken = {replication.target_topic(name): name for name in names - set(request.topics) if replication.selects(name)}
    if request.target_topic in taken:
        raise BadInput(
            f"target_topic: {request.target_topic!r} is where {replication.name} copies"
            f" {taken[request.target_topic]!r} to",
            "name another topic: records of two topics in one partition cannot be told apart",
        )


def _planned(run: Run, request: BackfillRequest, snapshot: Snapshot, view: LedgerView, live: Plan) -> BackfillPlan:
    wanted = partitions_of(request, snapshot.source)
    moments = [point for point in (request.from_, request.until) if isinstance(point, datetime)]
    times = {moment: offsets.at_time(run.clusters.source_admin, wanted, ceil_millis(moment)) for moment in moments}
    asked = resolve(request, snapshot.source, times)
    given = BackfillInput(
        replication=run.replication, snapshot=snapshot, ledger=view, watermarks=run.watermarks(view), live=live
    )
    return plan_backfill(given, asked, opens=request.target_topic is not None)


def _estimated(run: Run, made: BackfillPlan) -> BackfillPlan:
    """With the first records of each range read; only for somebody to look at."""
    wanted = {
        each.key.source: each.left.ranges[0]
        for each in sorted(made.lines, key=lambda line: -line.left.span)
        if each.plan.copy
    }
    return (
        made.estimated(samples(run.clusters.source, consumer_group(run.replication.name), wanted)) if wanted else made
    )


def open_new(run: LeasedRun, view: LedgerView, made: BackfillPlan) -> LedgerView:
    """Open what is new, each partition where its range begins. Raises Refused where a target holds records already."""
    made.raise_refused()
    new = Plan(made.replication, tuple(each.plan for each in made.lines if each.plan.state is State.OPENING))
    opened, refused = preparing.open_new(run, new)
    if refused:
        raise Refused("; ".join(each.what for each in refused.values()), next(iter(refused.values())).remedy)
    return replace(view, positions={**view.positions, **opened})
