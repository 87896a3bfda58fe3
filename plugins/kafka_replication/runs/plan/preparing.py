"""The first step: read both clusters and the ledger, create topics, open partitions, plan, and store the plan."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from kafka_replication.kafka.read.target_records import Ends
from kafka_replication.kafka.write import partitioner
from kafka_replication.kafka.write.start_offsets import StartOffsets
from kafka_replication.ledger.entries import Deleted, Position, Removed, Start
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import Busy, NotAuthorized
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.model.times import now
from kafka_replication.planning import plan_codec
from kafka_replication.planning.backfill.backfill_plan import raise_refused
from kafka_replication.planning.changes import changes
from kafka_replication.planning.checks import preflight, rights
from kafka_replication.planning.live import as_compared, own, plan, refuse_occupied
from kafka_replication.planning.needed_receipts import receipts_from
from kafka_replication.planning.plan import PartitionPlan, Plan, State
from kafka_replication.planning.snapshot import Problem, Snapshot
from kafka_replication.planning.starts import starts_to_write
from kafka_replication.runs.plan.demand import Demand, Planned, Ranges, World
from kafka_replication.runs.plan.existing_records import already_there
from kafka_replication.runs.plan.permission_checks import Answers, ask
from kafka_replication.runs.plan.previewing import told
from kafka_replication.runs.plan.receipt_check import defended
from kafka_replication.runs.plan.target_topics import create_quarantine, create_targets
from kafka_replication.runs.run import LeasedRun, Request, Run
from kafka_replication.runs.work.fencing import fence_stale_producers
from kafka_replication.watermarks.values import Lease

log = logging.getLogger(__name__)


def findings(run: Run, view: LedgerView, snapshot: Snapshot) -> list[preflight.Finding]:
    """The findings of preflight about both clusters."""
    return preflight.check(run.replication, snapshot, known=bool(view.positions))


@dataclass(frozen=True, slots=True)
class Live:
    """Live copying: every partition goes on from its position. One that is refused holds back no other."""

    request: Request
    kind: ClassVar[Literal["live"]] = "live"
    opens_live: ClassVar[bool] = True
    whole: ClassVar[bool] = False

    def ranges(self, run: Run, world: World) -> Ranges:  # noqa: ARG002 - see `Demand`
        return {}

    def plan(self, run: Run, world: World, ranges: Ranges, opening: Plan) -> Planned:  # noqa: ARG002
        return Planned(plan(run.replication, world.snapshot, world.view, run.watermarks(world.view)))


def prepare(run: LeasedRun, request: Request) -> Plan:
    """Create missing topics, open new partitions, then plan this run of live copying and store the plan.

    If an earlier attempt of this run stored a plan, return that plan. Raises PreflightFailed, NotAuthorized,
    Unreachable, Refused, ForeignWriter.
    """
    return planned_once(run, "live", lambda: _live(run, request))


def _live(run: LeasedRun, request: Request) -> Plan:
    run_plan = ready(run, Live(request))
    wanted = [
        planned for planned in run_plan.partitions if not request.topics or planned.key.source.topic in request.topics
    ]
    return _held(run, replace(run_plan, partitions=tuple(wanted)))


def planned_once(run: LeasedRun, kind: str, plan_: Callable[[], Plan]) -> Plan:
    """The plan that an earlier attempt of this run stored; else the one that ``plan_`` makes, which is stored.

    First it ends what dead runs left open, so that the ledger can be read.
    """
    try:
        run.check_pipeline()
        partitioner.check(run.replication.placing)
        fence_stale_producers(run)
        known, outdated = planned_before(run)
        return known if known is not None else store_plan(run, kind, plan_(), outdated)
    except NotAuthorized as error:
        raise told(run, error) from error


def _held(run: LeasedRun, run_plan: Plan) -> Plan:
    """The same plan without the partitions that other runs are at work on. Its notes name these topics and runs."""
    left = [planned.key for planned in run_plan.partitions if not run.holds(planned.key.target_topic)]
    if not left:
        return run_plan
    others = [lease for lease in run.store.leases(run.replication.name) if lease.owner != run.run_id]
    own_targets = {
        key.target_topic for key in left if run.replication.target_name(key.source.topic) == key.target_topic
    }
    notes = [
        f"{target} was left to {at_work(target, others)}, which is at work on it; the next run does what is left then"
        for target in sorted(own_targets)
    ]
    for note in notes:
        log.info("%s: %s", run.replication.name, note)
    kept = tuple(planned for planned in run_plan.partitions if run.holds(planned.key.target_topic))
    return replace(run_plan, partitions=kept, left_to_others=tuple(notes))


def at_work(target: str, leases: Iterable[Lease]) -> str:
    """Who has the lease of this target topic, for messages."""
    return next((lease.who for lease in leases if not lease.waiting and target in lease.topics), "another run")


def planned_before(run: Run) -> tuple[Plan | None, str | None]:
    """The stored plan of this run, if there is one: a retried task works on the same ranges.

    The second value is the text of an outdated stored plan. A plan is outdated if a topic was reset since then, because
    its offsets then mean other records, or if the run succeeded and the store deleted the plan.
    """
    stored = run.store.run(run.run_id)
    if stored is None:
        return None, None
    if not stored.plan:
        log.info("run %s succeeded before, and its plan was deleted; planning it again", run.run_id)
        return None, stored.plan
    known, view = plan_codec.decode(stored.plan, run.run_id), run.view()
    reset = (p.key for p in known.partitions if p.key in view.positions and not view.position(p.key, p.generation))
    key = next(reset, None)
    if key is not None:
        log.warning("run %s was planned before %s was reset; planning it again", run.run_id, key)
        return None, stored.plan
    log.info("run %s was planned before; continuing with its plan", run.run_id)
    return known, None


def store_plan(run: LeasedRun, kind: str, run_plan: Plan, outdated: str | None) -> Plan:
    """Store the plan, replacing ``outdated``, and return the stored plan.

    If another attempt of this run stored one first, that plan wins.
    """
    if run_plan.to_account_for:
        ends, view = run.clusters.ledger.receipt_ends(), run.view()
        noted = changes(run_plan, view, run.transform)
        run_plan = replace(run_plan, receipts_from=receipts_from(run_plan, view, ends), changes=noted)
    stored = run.store.start_run(
        run.run_id, run.replication.name, kind, plan_codec.encode(run_plan), instead_of=outdated
    )
    return plan_codec.decode(stored.plan, run.run_id)


def ready(run: LeasedRun, demand: Demand) -> Plan:
    """Look at both clusters, ask for rights, create missing topics, note what is gone from the target, open new
    partitions, plan, and compare positions with receipts: the same for every kind of run.

    The first look is not retried, so that a cluster that does not answer fails the run at once. All later calls are
    retried. Raises PreflightFailed, Refused.
    """
    first = _look(run, demand)
    answers = ask(run, first.snapshot, transactions=_failed_before(run))
    _raise_findings(demand, [*findings(run, first.view, answers.in_(first.snapshot)), *answers.findings])
    known: World | None = first

    def opened() -> Planned:
        nonlocal known
        world, known = known or _look(run, demand), None  # another attempt looks anew
        return _ready(run, demand, answers, world)

    planned = run.retry("opening", opened)
    if planned.text is not None:
        log.info("plan of %s run %s:\n%s", demand.kind, run.run_id, planned.text())
    return planned.plan


def _failed_before(run: Run) -> bool:
    """Whether the run before this one failed or died, perhaps because rights were withdrawn."""
    before = next((one for one in run.store.runs(run.replication.name, 2) if one.run_id != run.run_id), None)
    return before is not None and before.state in ("failed", "died")


def _look(run: Run, demand: Demand) -> World:
    """The ledger and a snapshot of the demanded topics.

    The first run has all topics, because it resolves the start offsets of all partitions: a topic left out would count
    as added later.
    """
    view = run.view()
    return World(run.snapshot(view, _widened(run, view, demand)), view)


def _widened(run: Run, view: LedgerView, demand: Demand) -> Request:
    widens = demand.opens_live and not own(run.replication, view).begun
    return replace(demand.request, topics=()) if widens else demand.request


def _ready(run: LeasedRun, demand: Demand, answers: Answers, world: World) -> Planned:
    world = _with_topics(run, demand, answers, world)
    ranges = demand.ranges(run, world)
    opening = _to_open(run, demand, world, ranges)
    notes = _notes_of(run, opening)
    opened, refused = open_new(run, opening, world.snapshot if demand.opens_live else None)
    world = replace(world, view=replace(world.view, positions={**world.view.positions, **opened}))
    planned = demand.plan(run, world, ranges, _refusing(opening, refused))
    run_plan = _refusing(defended(run, world.view, world.snapshot, planned.plan), refused)
    if demand.whole:
        raise_refused(run_plan)
    noted = tuple(_noted(partition, notes) for partition in run_plan.partitions)
    return replace(planned, plan=replace(run_plan, partitions=noted))


def _with_topics(run: LeasedRun, demand: Demand, answers: Answers, world: World) -> World:
    """The world in which every topic exists that the run needs, and in which the ledger knows what is gone."""
    snapshot, view = world.snapshot, world.view
    run.clusters.ledger.ensure(run.replication)
    create_quarantine(run, snapshot)
    had_ledger, widened = len(snapshot.ledger or {}) == 2, _widened(run, view, demand)
    created = create_targets(run, view, answers.in_(snapshot), widened)
    if created.ledger == snapshot.ledger and not had_ledger:
        created = run.snapshot(view, widened)
    snapshot = answers.in_(created)
    preflight.raise_errors(rights.missing_for_all(run.replication, snapshot))
    return World(snapshot, note_removals(run, view, snapshot))


def _to_open(run: LeasedRun, demand: Demand, world: World, ranges: Ranges) -> Plan:
    """The plan by which new partitions are opened. Raises Refused, before one is opened, for a demand that opens at the
    start of its ranges.
    """
    if demand.opens_live:
        return plan(run.replication, world.snapshot, world.view, run.watermarks(world.view))
    opening = demand.plan(run, world, ranges, Plan(run.replication.name, ())).plan
    raise_refused(opening)
    return opening


def _refusing(run_plan: Plan, refused: Mapping[PartitionKey, PartitionPlan]) -> Plan:
    return replace(run_plan, partitions=tuple(refused.get(planned.key, planned) for planned in run_plan.partitions))


def _notes_of(run: LeasedRun, opening: Plan) -> dict[TopicPartition, str]:
    """What the report has to tell of partitions that are about to be opened. It is logged now."""
    found = already_there(run, opening)
    _log_findings(found)
    return {
        TopicPartition(finding.topic, finding.partition): f"{finding.what}. {finding.remedy}"
        for finding in found
        if finding.topic is not None and finding.partition is not None
    }


def _noted(planned: PartitionPlan, notes: Mapping[TopicPartition, str]) -> PartitionPlan:
    return replace(planned, what=planned.what or notes.get(planned.key.source, ""))


def note_removals(run: LeasedRun, view: LedgerView, snapshot: Snapshot) -> LedgerView:
    """Store what the snapshot shows of copies that are no longer on the target. Returns the ledger with it.

    Later runs read receipts from there on only, and what was not explained when it was noticed stays so.
    """
    new = {key: entry for key, entry in snapshot.removed.items() if run.holds(key.target_topic)}
    if new:
        run.again_if_fenced("noting what was removed from the target", lambda: _note(run, new))
    return as_compared(view, snapshot)


def _note(run: LeasedRun, new: Mapping[PartitionKey, Removed]) -> None:
    with closing(run.opening()) as opening:
        view = opening.fence()
        run.check()
        opening.commit({}, {}, [(key, entry) for key, entry in new.items() if view.position(key, entry.generation)])
    for key, entry in new.items():
        log.info("%s: no longer on the target: %s, not explained: %s", key, entry.coverage, entry.unexplained)


def _raise_findings(demand: Demand, findings_: list[preflight.Finding]) -> None:
    """Log every finding. Raises PreflightFailed if one of them stops the run, or if the run does all of the demanded
    topics or nothing, and one of them has an error. What concerns one partition is raised when it is planned.
    """
    _log_findings(findings_)

    def stops(finding: preflight.Finding) -> bool:
        demanded = not demand.request.topics or finding.topic in demand.request.topics
        return finding.stops_the_run or (demand.whole and demanded and finding.partition is None)

    preflight.raise_errors(filter(stops, findings_))


def raise_all_findings(findings_: list[preflight.Finding]) -> None:
    """Log every finding. Raises PreflightFailed if one of them is an error, also about one topic: for runs that do all
    of it or nothing. What concerns one partition is raised when this partition is planned.
    """
    _log_findings(findings_)
    preflight.raise_errors(finding for finding in findings_ if finding.partition is None)


def _log_findings(findings_: list[preflight.Finding]) -> None:
    for finding in dict.fromkeys(findings_):
        finding.log_to(log)


def open_new(
    run: LeasedRun, run_plan: Plan, snapshot: Snapshot | None = None
) -> tuple[Mapping[PartitionKey, Position], dict[PartitionKey, PartitionPlan]]:
    """Commit the start offset of every new partition, so that ``latest`` is never resolved twice.

    With a ``snapshot``, which an opening of live copying has, it stores two more things: the start offsets of those
    partitions of the first opening that cannot be opened, and which deletions of source topics this run reports.
    Returns all positions of the ledger after that (empty if there is nothing to commit), and the refused partitions.
    """
    new = {planned.key: planned for planned in run_plan.partitions if planned.state is State.OPENING}
    held = any(run.holds(key.target_topic) for key in new)
    view = run.view() if snapshot else LedgerView()
    if not held and not (snapshot and _to_note(run, snapshot, view, run_plan)):
        return {}, {}
    known, opened, refused = run.again_if_fenced("opening", lambda: _open(run, run_plan, new, snapshot))
    for key, position in opened.items():
        log.info("opened %s at offset %d", key, position.start)
    return {**known, **opened}, refused


def _open(
    run: LeasedRun, run_plan: Plan, new: Mapping[PartitionKey, PartitionPlan], snapshot: Snapshot | None
) -> tuple[Mapping[PartitionKey, Position], Mapping[PartitionKey, Position], dict[PartitionKey, PartitionPlan]]:
    """The positions that were there, the new ones, and the refused partitions."""
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
    return view.positions, opened, refused


def _refuse_part(run: LeasedRun, new: Collection[PartitionKey]) -> None:
    """Raises Busy unless this run holds every partition that the first opening opens: it opens all of them together."""
    for key in sorted(new):
        if not run.holds(key.target_topic) and run.replication.target_name(key.source.topic) == key.target_topic:
            who = at_work(key.target_topic, run.store.leases(run.replication.name))
            raise Busy(
                f"{run.replication.name} was never opened, which opens all its topics together; {who} is at work on"
                f" {key.target_topic}",
                "wait for that run, or stop it; then run again",
            )


def _to_note(
    run: LeasedRun, snapshot: Snapshot, view: LedgerView, run_plan: Plan
) -> list[tuple[PartitionKey, Start | Deleted]]:
    """What the ledger has to remember about partitions that are not copied."""
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
    problems = {key: Problem.of(error) for key, error in unknown.items()}
    return refuse_occupied(new.values(), occupied, problems), ends
