"""The plan of a data interval. With ``progress: interval``, each run copies one data interval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Literal

from kafka_replication.kafka.metadata import offsets
from kafka_replication.ledger.view import LedgerView, copied_until
from kafka_replication.model.errors import Refused
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.model.times import ceil_millis
from kafka_replication.planning.backfill.backfill_plan import BackfillInput, plan_backfill
from kafka_replication.planning.live import Planner, own
from kafka_replication.planning.plan import Plan
from kafka_replication.planning.snapshot import Snapshot
from kafka_replication.reporting.backfill import plan_table
from kafka_replication.runs.plan import preparing
from kafka_replication.runs.plan.demand import Planned, Ranges, World
from kafka_replication.runs.run import LeasedRun, Request, Run
from kafka_replication.watermarks.boundaries import BoundaryKey


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
        made = plan_backfill(
            BackfillInput(
                replication=run.replication,
                snapshot=world.snapshot,
                ledger=world.view,
                watermarks=run.watermarks(world.view),
            ),
            to_plan,
            opens=True,
        )
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
    every = [
        (TopicPartition(name, number), topic.topic_id)
        for name, topic in snapshot.source.items()
        for number in topic.partitions
    ]
    keys = {at: BoundaryKey(at, topic_id) for at, topic_id in every}
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
