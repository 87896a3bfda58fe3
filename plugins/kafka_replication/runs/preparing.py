"""The first step: read both clusters and the ledger, create topics, open partitions, plan, and store the plan."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Final

from kafka_replication.ledger.entries import Deleted, Position, Removed, Start
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import Busy, NotAdmitted, NotAuthorized, Unreachable
from kafka_replication.model.offsets import PartitionKey, TopicPartition
from kafka_replication.model.times import ceil_millis, exactly, from_millis, now
from kafka_replication.model.trouble import Trouble, raise_errors
from kafka_replication.planning import plan_codec, rights
from kafka_replication.planning.backfill_plan import raise_refused
from kafka_replication.planning.live import as_compared, own, refuse_occupied, without_source
from kafka_replication.planning.lost_end import taken_back_since
from kafka_replication.planning.plan import PartitionPlan, Plan, State, changes, receipts_from
from kafka_replication.planning.refusals import starts_to_write
from kafka_replication.planning.snapshot import Snapshot
from kafka_replication.reporting.table import engine_rows
from kafka_replication.runs import previewing
from kafka_replication.runs.fencing import fence_stale_producers
from kafka_replication.runs.looking import (
    Demand,
    Live,
    Planned,
    World,
    asked,
    defended,
    log_findings,
    look,
    raise_findings,
    to_look_at,
)
from kafka_replication.runs.mending import mend
from kafka_replication.runs.run import LeasedRun, Request, Run
from kafka_replication.runs.target_topics import create_quarantine, create_targets, follow_settings
from kafka_replication.targets.start_offsets import Ends, StartOffsets

log = logging.getLogger(__name__)


def prepare(run: LeasedRun, request: Request) -> Plan:
    """Create missing topics, open new partitions, then plan this run of live copying and store the plan.

    If an earlier attempt of this run stored a plan, return that plan. Raises PreflightFailed, NotAuthorized,
    Unreachable, Refused, ForeignWriter.
    """
    return planned_once(run, "live", lambda: _live(run, request))


def _live(run: LeasedRun, request: Request) -> Planned:
    demand = Live(request)
    try:
        made = ready(run, demand)
    except (Unreachable, NotAdmitted) as error:
        made = _given_up(run, demand, error)
    wanted = [
        planned for planned in made.plan.partitions if not request.topics or planned.key.source.topic in request.topics
    ]
    run_plan = _held(run, replace(made.plan, partitions=tuple(wanted)))
    if request.until and run_plan.to_account_for:
        time = exactly(from_millis(ceil_millis(request.until)))
        cut = f"one cut: each partition up to its first record of {time} or later"
        run_plan = replace(run_plan, said=(*run_plan.said, cut))
    return replace(made, plan=run_plan)


def _given_up(run: LeasedRun, demand: Demand, error: Unreachable | NotAdmitted) -> Planned:
    """The plan of a sealed direction whose source cannot be used any more: it refuses all partitions. Raises ``error``
    if the direction is not sealed.
    """
    ends, view = run.clusters.ledger.receipt_ends(), run.view()
    snapshot = without_source(run.replication, view, Trouble.of(error))
    made = demand.plan(run, World(snapshot=snapshot, view=view, receipt_ends=ends), {})
    if not made.plan.is_sealed:
        raise error
    return made


def planned_once(run: LeasedRun, kind: str, plan_: Callable[[], Planned]) -> Plan:
    """The plan that an earlier attempt of this run stored; else the one that ``plan_`` makes, which is stored.

    First it ends what dead runs left open, so that the ledger can be read.
    """
    try:
        previewing.check_functions(run)
        mended = fence_stale_producers(run)
        stored, outdated = planned_before(run)
        if stored is not None:
            return stored
        planned = plan_()
        partitions = tuple(one.saying(mended.get(one.key, "")) for one in planned.plan.partitions)
        return store_plan(run, kind, replace(planned, plan=replace(planned.plan, partitions=partitions)), outdated)
    except NotAuthorized as error:
        raise previewing.with_missing_rights(run, error) from error


def _held(run: LeasedRun, run_plan: Plan) -> Plan:
    """The same plan without the partitions that other runs are at work on. Its notes name these topics and runs."""
    left = [planned.key for planned in run_plan.partitions if not run.holds(planned.key.target_topic)]
    if not left:
        return run_plan
    own_targets = {
        key.target_topic for key in left if run.replication.target_name(key.source.topic) == key.target_topic
    }
    notes = [
        f"{target} was left to {who}, which is at work on it; the next run does what is left then"
        for target, who in at_work(run, own_targets).items()
    ]
    for note in notes:
        log.info("%s: %s", run.replication.name, note)
    kept = tuple(planned for planned in run_plan.partitions if run.holds(planned.key.target_topic))
    return replace(run_plan, partitions=kept, said=(*run_plan.said, *notes))


def at_work(run: LeasedRun, targets: Iterable[str]) -> dict[str, str]:
    """The other runs that hold the leases of these target topics, for messages."""
    leases = [lease for lease in run.store.leases(run.replication.name) if lease.owner != run.run_id]
    held = [lease for lease in leases if not lease.waiting]
    return {at: next((one.who for one in held if at in one.topics), "another run") for at in sorted(targets)}


def planned_before(run: Run) -> tuple[Plan | None, str | None]:
    """The stored plan of this run, if there is one: a retried task works on the same ranges.

    The second value is the text of an outdated stored plan. A plan is outdated if a topic was reset since then, because
    its offsets then mean other records, if the run succeeded and the store deleted the plan, or if the file was changed
    in something that the plan depends on.
    """
    stored = run.store.run(run.run_id)
    if stored is None:
        return None, None
    if not stored.plan:
        log.info("run %s succeeded before, and its plan was deleted; planning it again", run.run_id)
        return None, stored.plan
    plan, view = plan_codec.decode(stored.plan, run.run_id), run.view()
    if changed := plan.changed(run.planned_with):
        log.warning("run %s was planned before %s changed; planning it again", run.run_id, ", ".join(changed))
        return None, stored.plan
    reset = (p.key for p in plan.partitions if p.key in view.positions and not view.position(p.key, p.generation))
    key = next(reset, None)
    if key is not None:
        log.warning("run %s was planned before %s was reset; planning it again", run.run_id, key)
        return None, stored.plan
    if (key := taken_back_since(plan, view)) is not None:
        message = "run %s was planned before the target lost the end of %s; planning it again"
        log.warning(message, run.run_id, key)
        return None, stored.plan
    if lost := run.comparison.lost_now(view, plan.workable):
        message = "run %s was planned before it was seen that the target lost the end of %s; planning it again"
        log.warning(message, run.run_id, next(iter(lost)))
        return None, stored.plan
    log.info("run %s was planned before; continuing with its plan", run.run_id)
    return plan, None


def store_plan(run: LeasedRun, kind: str, planned: Planned, outdated: str | None) -> Plan:
    """Store the plan, replacing ``outdated``, and return the stored plan.

    If another attempt of this run stored one first, that plan wins.
    """
    run_plan, world = planned.plan, planned.world
    if run_plan.to_account_for:
        since = receipts_from(run_plan, world.view, world.receipt_ends)
        run_plan = replace(run_plan, receipts_from=since, changes=changes(run_plan, world.view, run.transform))
    run_plan = previewing.with_engines(run, run_plan, world.snapshot)
    for row in engine_rows(planned.choice for planned in run_plan.partitions):
        log.info("%s run %s: %s", kind, run.run_id, row.line("to be copied"))
    run_plan = replace(run_plan, settings=run.planned_with)
    text = plan_codec.encode(run_plan)
    stored = run.store.start_run(run.run_id, run.replication.name, kind, text, instead_of=outdated)
    return run_plan if stored.plan == text else plan_codec.decode(stored.plan, run.run_id)


def looked_and_asked(run: LeasedRun, demand: Demand) -> World:
    """Look at both clusters and ask for rights. Raises PreflightFailed.

    It is not retried, so that a cluster that does not answer fails the run at once. All later calls are retried.
    """
    world = asked(run, look(run, demand), transactions=_failed_before(run))
    raise_findings(run, demand, world)
    return world


def ready(run: LeasedRun, demand: Demand, before: Planned | None = None) -> Planned:
    """Look at both clusters, ask for rights, create missing topics, note what is gone from the target, open new
    partitions, plan, and compare positions with receipts: the same for every kind of run.

    ``before`` is a plan of this demand that was made just now, in the world that it names; then it begins with that.
    Raises PreflightFailed, Refused.
    """
    first = before.world if before is not None else looked_and_asked(run, demand)
    attempts = itertools.count()

    def opened() -> Planned:
        if next(attempts):  # another attempt looks anew
            return _ready(run, demand, look(run, demand, first.answers))
        return _ready(run, demand, first, before)

    planned = run.retry("opening", opened)
    if planned.text is not None:
        log.info("plan of %s run %s:\n%s", demand.kind, run.run_id, planned.text())
    return planned


def _failed_before(run: Run) -> bool:
    """True if the run before this one failed or died, perhaps because rights were withdrawn."""
    before = next((one for one in run.store.runs(run.replication.name, 2) if one.run_id != run.run_id), None)
    return before is not None and before.state in ("failed", "died")


def _ready(run: LeasedRun, demand: Demand, world: World, before: Planned | None = None) -> Planned:
    world = _note_removals(run, _create_topics(run, demand, world))
    planned = _planned_in(run, demand, world, before)
    for act in ACTS:
        planned = _planned_in(run, demand, act(run, demand, planned), planned)
    world, refusing = planned.world, run.replication.mend == "report"
    partitions = (world.noted(partition, refusing=refusing) for partition in planned.plan.partitions)
    run_plan = replace(planned.plan, partitions=tuple(partitions))
    if demand.whole:
        raise_refused(run_plan)
    if demand.kind != "backfill":
        run_plan = replace(run_plan, said=follow_settings(run, run_plan, world.snapshot))
    return replace(planned, plan=run_plan)


def _planned_in(run: LeasedRun, demand: Demand, world: World, before: Planned | None) -> Planned:
    """The plan in this world; the one ``before`` if that is of the same world."""
    if before is not None and world.is_as(before.world):
        return replace(before, world=world)
    return defended(run, demand.plan(run, world, before.ranges if before else demand.ranges(run, world)))


def _create_topics(run: LeasedRun, demand: Demand, world: World) -> World:
    """The world in which every topic exists that the run needs."""
    snapshot, view = world.snapshot, world.view
    run.clusters.ledger.ensure(run.replication)
    create_quarantine(run, snapshot)
    had_ledger, request = len(snapshot.ledger or {}) == 2, to_look_at(run, view, demand)
    created = create_targets(run, view, snapshot, request)
    if created.ledger == snapshot.ledger and not had_ledger:
        created = run.snapshot(view, request)
    if created is not snapshot:
        world = replace(world, snapshot=world.answers.added_to(created))
    raise_errors(rights.missing_for_all(run.replication, world.snapshot))
    return world


def _foresee(run: LeasedRun, demand: Demand, planned: Planned) -> World:
    """Notes for the report about partitions that are about to be opened or copied. They are logged now."""
    if not demand.opens_live:
        raise_refused(planned.opening or planned.plan)  # before one is opened, at the start of its range
    found = previewing.foreseen(run, planned, live=demand.kind != "backfill")
    log_findings(found)
    notes = dict[TopicPartition, str]()
    for finding in found:
        if finding.topic is not None and finding.partition is not None:
            partition, note = TopicPartition(finding.topic, finding.partition), f"{finding.what}. {finding.remedy}"
            notes[partition] = f"{notes[partition]}; {note}" if partition in notes else note
    return replace(planned.world, notes=notes)


def _note_removals(run: LeasedRun, world: World) -> World:
    """Note in the ledger what the snapshot shows of copies that are no longer on the target.

    Later runs read receipts from there on only, and what was not explained when it was noticed stays so.
    """
    removed = world.snapshot.removed
    new = {key: entry for key, entry in removed.items() if run.holds(key.target_topic)}
    if new:
        run.again_if_fenced("noting what was removed from the target", lambda: _note(run, new))
    return replace(world, view=as_compared(world.view, world.snapshot)) if removed else world


def _note(run: LeasedRun, new: Mapping[PartitionKey, Removed]) -> None:
    with closing(run.opening()) as opening:
        view = opening.fence()
        run.check()
        opening.commit({}, {}, [(key, entry) for key, entry in new.items() if view.position(key, entry.generation)])
    for key, entry in new.items():
        log.info("%s: no longer on the target: %s, not explained: %s", key, entry.coverage, entry.unexplained)


def _open_partitions(run: LeasedRun, demand: Demand, planned: Planned) -> World:
    """Commit the start offset of every new partition, so that ``latest`` is never resolved twice.

    An opening of live copying stores two more things: the start offsets of those partitions of the first opening
    that cannot be opened, and which deletions of source topics this run reports.
    """
    world, run_plan = planned.world, planned.opening or planned.plan
    new = {planned.key: planned for planned in run_plan.partitions if planned.state is State.OPENING}
    snapshot = world.snapshot if demand.opens_live else None
    held = any(run.holds(key.target_topic) for key in new)
    if not held and not (snapshot and _to_note(run, snapshot, world.view, run_plan)):
        return world
    view, opened, refused = run.again_if_fenced("opening", lambda: _open(run, run_plan, new, snapshot))
    for key, position in opened.items():
        log.info("opened %s at offset %d", key, position.start)
    view = replace(view, positions={**view.positions, **opened})
    return replace(world, view=as_compared(view, world.snapshot), refused=refused)


def _open(
    run: LeasedRun, run_plan: Plan, new: Mapping[PartitionKey, PartitionPlan], snapshot: Snapshot | None
) -> tuple[LedgerView, Mapping[PartitionKey, Position], dict[PartitionKey, PartitionPlan]]:
    """The ledger before it, the new positions, and the refused partitions."""
    run.check()
    with closing(run.opening()) as opening:
        view = opening.fence()
        if not own(run.replication, view).begun:
            _refuse_part(run, new)
        left = {key: p for key, p in new.items() if key not in view.positions and run.holds(key.target_topic)}
        refused, ends = _not_openable(run, opening, left, view)
        positions = {
            key: Position(generation=p.generation, ids=p.ids, start=p.start, next_offset=p.start)
            for key, p in left.items()
            if key not in refused
        }
        outcome = replace(run_plan, partitions=tuple(refused.get(p.key, p) for p in run_plan.partitions))
        run.check()
        opened = opening.commit(positions, ends, _to_note(run, snapshot, view, outcome) if snapshot else ())
    return view, opened, refused


def _refuse_part(run: LeasedRun, new: Collection[PartitionKey]) -> None:
    """Raises Busy unless this run holds every partition that the first opening opens: it opens all of them together."""
    for key in sorted(new):
        if not run.holds(key.target_topic) and run.replication.target_name(key.source.topic) == key.target_topic:
            [who] = at_work(run, [key.target_topic]).values()
            raise Busy(
                f"{run.replication.name} was never opened, which opens all its topics together; {who} is at work on"
                f" {key.target_topic}",
                "wait for that run, or stop it; then run again",
            )


def _to_note(
    run: LeasedRun, snapshot: Snapshot, view: LedgerView, run_plan: Plan
) -> list[tuple[PartitionKey, Start | Deleted]]:
    """Entries by which the ledger remembers partitions that are not copied."""
    time = now()
    starts = starts_to_write(run.replication, snapshot, own(run.replication, view), run_plan.refused, time)
    deleted = {
        planned.key: Deleted(source_topic=planned.ids.source_topic, run_id=run.run_id, time=time)
        for planned in run_plan.partitions
        if planned.state is State.DELETED and planned.what
    }
    return [*starts.items(), *deleted.items()]


def _not_openable(
    run: LeasedRun, opening: StartOffsets, new: Mapping[PartitionKey, PartitionPlan], view: LedgerView
) -> tuple[dict[PartitionKey, PartitionPlan], dict[PartitionKey, Ends]]:
    """The partitions that may not be opened, and the ends of targets that may have records of others."""
    wait, ends = run.deadline.within(run.replication.timeouts.request), dict[PartitionKey, Ends]()
    if run.replication.on_existing_target == "share":
        return {}, {}
    if run.replication.on_existing_target == "refuse":
        occupied, unknown = opening.records.occupied_each(new, wait, view.positions)
    else:
        occupied = {}
        ends, unknown = opening.records.ends(new, wait)
    return refuse_occupied(new.values(), occupied, unknown), ends


Act = Callable[[LeasedRun, Demand, Planned], World]
# What every kind of run does between its first plan and copying, in this order. Each returns the world after it, which
# is planned anew if clusters or ledger changed.
ACTS: Final[tuple[Act, ...]] = (
    lambda run, _, planned: mend(run, planned.plan, planned.world),
    _foresee,
    _open_partitions,
)
