"""A backfill, put together: plan a range, copy what of it is not on the target in bounded slices, verify, report.

The command line and the backfill DAG call these. Everything that copies, verifies and advances is `steps`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime

from kafka_replication.config import Replication
from kafka_replication.connections.environment import Connections
from kafka_replication.copying.protocol import CopyResult
from kafka_replication.kafka import ledger_topics, offsets, topics
from kafka_replication.kafka.sampling import samples
from kafka_replication.ledger.entries import Position
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import BadInput, Refused
from kafka_replication.model.keys import PartitionKey, consumer_group
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.model.times import ceil_millis
from kafka_replication.planning import preflight
from kafka_replication.planning.backfill import (
    BackfillPlan,
    World,
    next_slice,
    one_topic,
    partitions_of,
    plan_backfill,
    resolve,
)
from kafka_replication.planning.backfill_request import BackfillRequest
from kafka_replication.planning.plan import PartitionPlan, Plan, State, own, plan
from kafka_replication.planning.snapshot import Snapshot
from kafka_replication.reporting.backfill import plan_table
from kafka_replication.reporting.report import RunReport
from kafka_replication.runs import steps
from kafka_replication.runs.run import Request, Run
from kafka_replication.runs.runner import held, new_run_id
from kafka_replication.runtime.deadline import Deadline
from kafka_replication.spark.jobs import Launcher
from kafka_replication.verification.verify import VerifyResult
from kafka_replication.watermarks.boundaries import BoundaryKey
from kafka_replication.watermarks.store import WatermarkStore
from kafka_replication.watermarks.values import RangeOutcome

log = logging.getLogger(__name__)
KIND = "backfill"


def run(
    replication: Replication,
    connections: Connections,
    store: WatermarkStore,
    launcher: Callable[[], Launcher],
    request: BackfillRequest,
) -> RunReport:
    """All of a backfill, under the replication's lease. Where there is nothing to do no launcher is asked for."""
    run_id, deadline = new_run_id(), Deadline.after(replication.timeouts.run)
    with ExitStack() as stack:
        lease = stack.enter_context(held(replication, store, run_id, release=True))
        this = Run(replication, connections, store, run_id, lease.check, deadline)
        made = prepare(this, request)
        verified = [] if made.idle else copy_slices(this, made, launcher()).not_verified
        steps.advance(this, [each.key for each in made.partitions])
        return steps.report(this, made, verified)


def look(run: Run, request: BackfillRequest) -> BackfillPlan:
    """What the backfill would mean, without touching anything. Raises BadInput, PreflightFailed."""
    this = _seen_as(run, request)
    _check_topics(run, request)
    view = run.view()
    only = Request(topics=request.topics)
    snapshot = this.snapshot(view, only)
    steps.raise_findings(preflight.check(this.replication, snapshot, known=True))
    live = (
        Plan(run.replication.name, ())
        if request.target_topic
        else plan(run.replication, snapshot, view, run.watermarks(view))
    )
    return _estimated(this, _planned(this, request, snapshot, view, live))


def prepare(run: Run, request: BackfillRequest) -> Plan:
    """The plan, stored with the run, after opening what was never opened. The stored one, if there is one.

    The caller holds the replication's lease. Raises BadInput, PreflightFailed, Refused naming every partition that
    cannot be done.
    """
    steps.settle(run)
    known, over = steps.planned_before(run)
    if known is not None:
        return known
    seen = look(run, request)
    seen.raise_refused()
    if seen.plan.idle:  # nothing is created or opened for nothing
        return _store(run, KIND, seen, over)
    this, only = _seen_as(run, request), Request(topics=request.topics)
    if request.target_topic is None:
        snapshot, view, live = steps.begin(run, only)
    else:
        ledger_topics.ensure(run.target_admin)
        view, live = run.view(), Plan(run.replication.name, ())
        snapshot = steps.create_targets(this, view, only)
        view = _open(this, view, _planned(this, request, snapshot, view, live))
    made = _planned(this, request, snapshot, view, live)
    made.raise_refused()
    return _store(run, KIND, _estimated(this, made), over)


def _store(run: Run, kind: str, made: BackfillPlan, over: str | None) -> Plan:
    log.info("plan of %s run %s:\n%s", kind, run.run_id, plan_table(made))
    return steps.store_plan(run, kind, made.plan, over)


def _seen_as(run: Run, request: BackfillRequest) -> Run:
    return replace(run, replication=one_topic(run.replication, request))


def _check_topics(run: Run, request: BackfillRequest) -> None:
    names, replication = set(topics.names(run.source_admin)), run.replication
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
    times = {moment: offsets.at_time(run.source_admin, wanted, ceil_millis(moment)) for moment in moments}
    asked = resolve(request, snapshot.source, times)
    world = World(run.replication, snapshot, view, run.watermarks(view), live)
    return plan_backfill(world, asked, opens=request.target_topic is not None)


def _estimated(run: Run, made: BackfillPlan) -> BackfillPlan:
    """With the first records of each range read; only for somebody to look at."""
    wanted = {
        each.key.source: each.left.ranges[0]
        for each in sorted(made.lines, key=lambda line: -line.left.span)
        if each.plan.copy
    }
    return made.estimated(samples(run.source, consumer_group(run.replication.name), wanted)) if wanted else made


def _open(run: Run, view: LedgerView, made: BackfillPlan) -> LedgerView:
    """Open what is new, each partition where its range begins. Raises Refused where a target holds records already."""
    made.raise_refused()
    new = Plan(made.replication, tuple(each.plan for each in made.lines if each.plan.state is State.OPENING))
    opened, refused = steps.open_new(run, new)
    if refused:
        raise Refused("; ".join(each.what for each in refused.values()), next(iter(refused.values())).remedy)
    return replace(view, positions={**view.positions, **opened})


def prepare_interval(run: Run, start: datetime, end: datetime) -> Plan:
    """The plan of a data interval: per partition what lies between its two boundaries, each resolved once and stored.

    The caller holds the replication's lease. Raises PreflightFailed, Refused naming every partition that cannot be
    done.
    """
    steps.settle(run)
    known, over = steps.planned_before(run)
    if known is not None:
        return known
    view = run.view()
    steps.raise_findings(steps.findings(run, view, run.snapshot(view)))
    ledger_topics.ensure(run.target_admin)
    snapshot = steps.create_targets(run, view, Request())
    _refuse_vanished(run, snapshot, view)
    asked = _interval(run, snapshot, own(run.replication, view), start, end)

    def planned(view: LedgerView) -> BackfillPlan:
        return plan_backfill(
            World(run.replication, snapshot, view, run.watermarks(view), Plan(run.replication.name, ())),
            asked,
            opens=True,
        )

    made = planned(_open(run, view, planned(view)))
    made.raise_refused()
    log.info("data interval [%s, %s)", start.isoformat(), end.isoformat())
    return _store(run, "interval", made, over)


def _interval(
    run: Run, snapshot: Snapshot, view: LedgerView, start: datetime, end: datetime
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

    def settled(moment: datetime, found: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        if moment <= max(
            start, newest
        ):  # what appeared after the replication began is copied from its beginning, by a run yet to come
            found = {**found, **appeared}
        copied = {at: known[at].end_before(offset) for at, offset in found.items() if moment == start and at in known}
        stored = run.store.settle_boundaries(
            run.replication.name,
            moment,
            {keys[at]: offset for at, offset in found.items()},
            {keys[at]: offset for at, offset in copied.items()},
        )
        return {key.at: offset for key, offset in stored.items()}

    froms, untils = (
        settled(moment, offsets.at_time(run.source_admin, keys, ceil_millis(moment))) for moment in (start, end)
    )
    if newest > end:
        settled(newest, appeared)
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


@dataclass(frozen=True, slots=True)
class Slices:
    """What went wrong in the last slice of each range; both are empty when nothing did.

    ``records`` and ``bytes`` were copied.
    """

    not_copied: list[CopyResult]
    not_verified: list[VerifyResult]
    records: int
    bytes: int


def copy_slices(run: Run, made: Plan, launch: Launcher) -> Slices:
    """Copy, verify and advance, slice after slice, until all of it is on the target or has failed.

    Called again after a crash it goes on where the ledger ends. What failed is recorded with the run, for
    `steps.report`.
    """
    most, keys = run.replication.max_records_per_run, [each.key for each in made.partitions]
    done: dict[PartitionKey, list[CopyResult]] = {each.key: [] for each in made.to_copy}
    failed: dict[PartitionKey, VerifyResult] = {}
    number = 0
    while True:
        positions = run.view().positions
        without = {*failed, *(key for key, results in done.items() if results and results[-1].error)}
        part = next_slice(made, positions, most, without)
        if not part.partitions:
            break
        number += 1
        log.info("%s", _progress(made, positions, number, part))
        for each in steps.copy(run, part, launch).copies:
            done[each.key].append(each)
        failed |= {each.key: each for each in steps.verify(run, [p.key for p in part.partitions], launch) if each.error}
        steps.advance(run, keys)
    failed |= {
        each.key: each for each in steps.verify(run, [key for key in keys if key not in failed], launch) if each.error
    }
    log.info("%s", _progress(made, run.view().positions, number, None))
    _record(run, made, done)
    every = [each for results in done.values() for each in results]
    last = [results[-1] for results in done.values() if results]
    return Slices(
        [each for each in last if each.error],
        list(failed.values()),
        sum(each.copied for each in every),
        sum(each.bytes for each in every),
    )


def _progress(made: Plan, positions: Mapping[PartitionKey, Position], number: int, part: Plan | None) -> str:
    total = sum(each.copy.span for each in made.to_copy if each.copy)
    left = sum(range_.span for each in made.to_copy for range_ in _left(each, positions))
    share = f"{total - left} of {total} offsets are on the target ({100 * (total - left) // max(1, total)}%)"
    if part is None:
        return f"backfill after {number} slices: {share}"
    named = ", ".join(f"{each.key.source} {each.copy}" for each in part.partitions[:20])
    return f"backfill, slice {number}: {named}{' and others' if len(part.partitions) > 20 else ''}; until now {share}"


def _left(each: PartitionPlan, positions: Mapping[PartitionKey, Position]) -> tuple[OffsetRange, ...]:
    assert each.copy is not None
    return positions[each.key].left_of(each.copy) if each.key in positions else (each.copy,)


def _record(run: Run, made: Plan, done: Mapping[PartitionKey, list[CopyResult]]) -> None:
    """One outcome for each range as a whole; its slices have their own."""
    for each in made.to_copy:
        results = done[each.key]
        if each.copy and results:
            last = results[-1]
            run.store.record_outcome(
                RangeOutcome(
                    run.run_id,
                    each.key,
                    each.copy,
                    error=last.error,
                    remedy=last.remedy or None,
                    seconds=sum(result.seconds for result in results),
                    bytes=sum(result.bytes for result in results),
                )
            )
