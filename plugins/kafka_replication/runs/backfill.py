"""A backfill: plan a range, replicate its missing parts in bounded slices, report.

The command line and the backfill DAG call these functions. `steps` replicates and reports.

The plan of a data interval. With ``progress: interval``, each run copies one data interval.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar, Literal, TypeVar

from kafka_replication.kafka import offsets, topics
from kafka_replication.kafka.sampling import samples
from kafka_replication.ledger.view import LedgerView, copied_until
from kafka_replication.model.errors import BadInput, Refused
from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition, consumer_group
from kafka_replication.model.times import ceil_millis
from kafka_replication.planning.backfill_plan import (
    BackfillPlan,
    one_topic,
    partitions_of,
    plan_backfill,
    raise_refused,
    resolve,
)
from kafka_replication.planning.backfill_request import BackfillRequest
from kafka_replication.planning.live import Planner, as_compared, own, plan
from kafka_replication.planning.plan import Plan
from kafka_replication.planning.snapshot import Snapshot
from kafka_replication.reporting.backfill import plan_table
from kafka_replication.reporting.run import RunReport
from kafka_replication.runs import preparing
from kafka_replication.runs.leasing import backfill_scope, leased
from kafka_replication.runs.looking import Planned, Ranges, World, asked, defended, look, raise_findings
from kafka_replication.runs.previewing import check_functions, with_engines
from kafka_replication.runs.recopy import give_back_each, offsets_to_copy_again
from kafka_replication.runs.run import LeasedRun, Request, Run
from kafka_replication.runs.runner import carry_out
from kafka_replication.spark.launcher import Launcher
from kafka_replication.watermarks.rules import BoundaryKey

log = logging.getLogger(__name__)
AnyRun = TypeVar("AnyRun", bound=Run)


def execute(run: Run, launcher: Launcher, request: BackfillRequest) -> RunReport:
    """A whole backfill, under a lease of its target topics. If nothing is to be done, ``launcher`` gets no job."""
    with leased(run, backfill_scope(run, request.topics, request.target_topic), "backfill") as leased_run:
        return carry_out(leased_run, prepare(leased_run, request), launcher)


def preview(run: Run, request: BackfillRequest) -> BackfillPlan:
    """The effect that the backfill would have. Changes nothing. Raises BadInput, PreflightFailed."""
    check_functions(run)
    run, demand = _demanded(run, request)
    world = asked(run, look(run, demand, opens=False), transactions=True)
    raise_findings(run, demand, world)
    effect = _planned(run, demand, world).effect
    return _estimated(run, effect.replanned(with_engines(run, effect.plan, world.snapshot)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBackfill(Planned):
    """The plan of a backfill, and its effect on each partition."""

    made: BackfillPlan  # as it was made, before receipts were looked at

    @property
    def effect(self) -> BackfillPlan:
        return self.made.replanned(self.plan)


@dataclass(frozen=True, slots=True)
class Backfill:
    """A range of offsets or times, into the replication's own target topics or into another one."""

    asked: BackfillRequest
    kind: ClassVar[Literal["backfill"]] = "backfill"
    whole: ClassVar[bool] = True

    @property
    def opens_live(self) -> bool:
        """The replication's own targets are opened as a live run opens them, which goes on from there."""
        return self.asked.target_topic is None

    @property
    def request(self) -> Request:
        return Request(topics=self.asked.topics)

    def ranges(self, run: Run, world: World) -> Ranges:
        source, admin = world.snapshot.source, run.clusters.source_admin
        wanted = partitions_of(self.asked, source)
        moments = [point for point in (self.asked.from_, self.asked.until) if isinstance(point, datetime)]
        times = {moment: offsets.at_time(admin, wanted, ceil_millis(moment)) for moment in moments}
        return resolve(self.asked, source, times)

    def plan(self, run: Run, world: World, ranges: Ranges) -> PlannedBackfill:
        snapshot, view, watermarks = world.snapshot, world.view, run.watermarks(world.view)
        live = plan(run.replication, snapshot, view, watermarks) if self.opens_live else None
        wanted = {
            PartitionKey(run.replication.name, at, run.replication.target_topic(at.topic)): range_
            for at, range_ in ranges.items()
        }
        again = offsets_to_copy_again(run, as_compared(view, snapshot), snapshot, wanted)
        opens = not self.opens_live
        made = plan_backfill(run.replication, snapshot, view, watermarks, ranges, opens=opens, live=live, again=again)
        return PlannedBackfill(
            plan=made.plan,
            world=world,
            ranges=ranges,
            opening=live,
            text=lambda: plan_table(_estimated(run, made)),
            made=made,
        )


def prepare(run: LeasedRun, request: BackfillRequest) -> Plan:
    """Open new partitions, then plan and store the plan. If the run has a stored plan already, return that one.

    Raises BadInput, PreflightFailed, NotAuthorized, or Refused, which names every refused partition.
    """
    return preparing.planned_once(run, Backfill.kind, lambda: _prepared(run, request))


def _prepared(run: LeasedRun, request: BackfillRequest) -> Planned:
    run, demand = _demanded(run, request)
    planned = _planned(run, demand, preparing.looked_and_asked(run, demand))
    raise_refused(planned.plan)
    if planned.plan.idle:  # create and open nothing if there is nothing to do
        log.info("plan of %s run %s:\n%s", demand.kind, run.run_id, plan_table(planned.effect))
        return planned
    # These have to be given back before they can be copied a second time.
    if again := {line.key: line.again for line in planned.effect.lines if line.again and line.plan.copy}:
        give_back_each(run, planned.world.snapshot, again)
        return preparing.ready(run, demand)  # in the ledger after that
    return preparing.ready(run, demand, planned)


def _demanded(run: AnyRun, request: BackfillRequest) -> tuple[AnyRun, Backfill]:
    """The run with the settings of this request, and the request with names."""
    request = _with_topics(run, request)
    return run.of(one_topic(run.replication, request)), Backfill(request)


def _planned(run: Run, demand: Backfill, world: World) -> PlannedBackfill:
    return defended(run, demand.plan(run, world, demand.ranges(run, world)))


def _with_topics(run: Run, request: BackfillRequest) -> BackfillRequest:
    """The request with names: all topics of the replication if it has none. Raises BadInput if there are none, if the
    source lacks one of them, or if ``target_topic`` is where another topic is copied to.
    """
    names, replication = topics.names(run.clusters.source_admin), run.replication
    selected = [name for name in names if replication.selects(name)]
    request = replace(request, topics=request.topics or tuple(selected))
    if not request.topics:
        raise BadInput("topic: the source has no topic that topics.include selects", "correct it, or grant Describe")
    missing = sorted(set(request.topics) - set(names))
    if missing:
        raise BadInput(
            f"topic: {', '.join(map(repr, missing))} does not exist on the source",
            "correct it, or grant Describe on it",
        )
    taken = {replication.target_topic(name): name for name in selected if name not in request.topics}
    if request.target_topic in taken:
        raise BadInput(
            f"target_topic: {request.target_topic!r} is where {replication.name} copies"
            f" {taken[request.target_topic]!r} to",
            "name another topic: records of two topics in one partition cannot be told apart",
        )
    return request


def _estimated(run: Run, backfill_plan: BackfillPlan) -> BackfillPlan:
    """Add estimates from the first records of each range. They are only shown, never used."""
    wanted = {
        line.key.source: line.left.ranges[0]
        for line in sorted(backfill_plan.lines, key=lambda line: -line.left.span)
        if line.plan.copy
    }
    if not wanted:
        return backfill_plan
    return backfill_plan.estimated(samples(run.clusters.source, consumer_group(run.replication.name), wanted))


@dataclass(frozen=True, slots=True)
class Interval:
    """A data interval: for each partition the offsets between two boundaries, which are resolved once and stored."""

    start: datetime
    end: datetime
    kind: ClassVar[Literal["interval"]] = "interval"
    opens_live: ClassVar[bool] = False
    whole: ClassVar[bool] = True
    request: ClassVar[Request] = Request()

    def ranges(self, run: Run, world: World) -> Ranges:
        """Raises Refused for topics that are gone."""
        view = own(run.replication, world.view)
        _refuse_vanished(run, world.snapshot, view)
        return _interval(run, world.snapshot, view, self.start, self.end)

    def plan(self, run: Run, world: World, ranges: Ranges) -> Planned:
        to_plan = {at: _from_lost_end(run, world, at, range_) for at, range_ in ranges.items()}
        watermarks = run.watermarks(world.view)
        made = plan_backfill(run.replication, world.snapshot, world.view, watermarks, to_plan, opens=True)
        title = f"data interval [{self.start.isoformat()}, {self.end.isoformat()})"
        return Planned(plan=made.plan, world=world, ranges=ranges, text=lambda: f"{title}\n{plan_table(made)}")


def prepare_interval(run: LeasedRun, start: datetime, end: datetime) -> Plan:
    """The plan of a data interval. If the run has a stored plan already, return that one.

    Raises PreflightFailed, NotAuthorized, or Refused, which names every refused partition.
    """
    return preparing.planned_once(run, Interval.kind, lambda: preparing.ready(run, Interval(start, end)))


def _from_lost_end(run: Run, world: World, at: TopicPartition, range_: OffsetRange) -> OffsetRange:
    """The range, with what the target lost at its end before it: that has to be copied first, so that the order is
    kept, and no later run would copy it. Not if the source lost it, too, or if offsets between were never asked for.
    """
    key = PartitionKey(run.replication.name, at, run.replication.target_topic(at.topic))
    position = own(run.replication, world.view).positions.get(key)
    if position is None or not range_.from_ <= position.next_offset <= range_.until:
        return range_
    lost_from, log_start = copied_until(position), world.snapshot.source[at.topic].offsets(at.partition).log_start
    return OffsetRange(min(range_.from_, lost_from), range_.until) if lost_from >= log_start else range_


def _interval(
    run: Run, snapshot: Snapshot, view: LedgerView, start: datetime, end: datetime
) -> dict[TopicPartition, OffsetRange]:
    keys = {
        (at := TopicPartition(name, number)): BoundaryKey(at, topic.topic_id)
        for name, topic in snapshot.source.items()
        for number in topic.partitions
    }
    coverages = {key.source: position.coverage for key, position in view.positions.items()}
    appeared = {
        at: snapshot.source[at.topic].offsets(at.partition).log_start
        for at in keys
        if coverages and at not in coverages
    }
    newest = run.store.newest_boundary(run.replication.name) or start

    def store_boundaries(moment: datetime, resolved: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        # A partition that appeared later is copied from its log start, by a later run.
        if moment <= max(start, newest):
            resolved = {**resolved, **appeared}
        copied = {
            at: coverages[at].end_before(offset)
            for at, offset in resolved.items()
            if moment == start and at in coverages
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
    planner = Planner(replication=run.replication, snapshot=snapshot, ledger=view, watermarks={})
    gone = [key.source for key, _ in planner.gone()]
    if gone:
        what = "; ".join(f"{at}: the source topic or partition is gone" for at in gone)
        raise Refused(what, f"grant Describe on it, or exclude {gone[0].topic} if that is intended")
