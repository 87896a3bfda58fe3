"""The first step: look at both clusters and the ledger, create and open what is new, plan, and store the plan."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace

from kafka_replication.ledger.entries import Position
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.keys import PartitionKey
from kafka_replication.planning import plan_codec, preflight
from kafka_replication.planning.live import own, plan, refuse_occupied
from kafka_replication.planning.needed_receipts import receipts_from
from kafka_replication.planning.plan import PartitionPlan, Plan, State
from kafka_replication.planning.snapshot import Snapshot
from kafka_replication.runs.run import LeasedRun, Request, Run
from kafka_replication.runs.steps.fencing import fence_stale_producers
from kafka_replication.runs.steps.target_topics import create_targets

log = logging.getLogger(__name__)


def preview(run: Run, request: Request) -> tuple[Plan, list[preflight.Finding]]:
    """What a run would do now, and what preflight finds. Creates, opens and stores nothing."""
    view = run.view()
    snapshot = run.snapshot(view, request)
    return plan(run.replication, snapshot, view, run.watermarks(view)), findings(run, view, snapshot)


def findings(run: Run, view: LedgerView, snapshot: Snapshot) -> list[preflight.Finding]:
    """What preflight says of both clusters."""
    return preflight.check(run.replication, snapshot, known=bool(view.positions))


def prepare(run: LeasedRun, request: Request) -> Plan:
    """The plan of this run, stored; made after missing topics are created and new partitions are opened.

    A plan that an earlier attempt of this run stored is returned as it is. Raises PreflightFailed, Unreachable,
    Refused, ForeignWriter.
    """
    fence_stale_producers(run)
    known, outdated = planned_before(run)
    if known is not None:
        return known
    _, _, made = begin(run, request)
    wanted = [each for each in made.partitions if not request.topics or each.key.source.topic in request.topics]
    return store_plan(run, "live", replace(made, partitions=tuple(wanted)), outdated)


def planned_before(run: Run) -> tuple[Plan | None, str | None]:
    """The stored plan of this run, if there is one: a task that is tried again works on the same ranges.

    The second value is the text of a stored plan that is outdated: a topic was reset since then, and its offsets mean
    other records now; or the run succeeded, and the store dropped its plan.
    """
    stored = run.store.run(run.run_id)
    if stored is None:
        return None, None
    if not stored.plan:
        log.info("run %s succeeded before, and its plan was dropped; planning it again", run.run_id)
        return None, stored.plan
    known, view = plan_codec.decode(stored.plan, run.run_id), run.view()
    reset = (p.key for p in known.partitions if p.key in view.positions and not view.position(p.key, p.generation))
    key = next(reset, None)
    if key is not None:
        log.warning("run %s was planned before %s was reset; planning it again", run.run_id, key)
        return None, stored.plan
    log.info("run %s was planned before; going on with its plan", run.run_id)
    return known, None


def store_plan(run: LeasedRun, kind: str, made: Plan, outdated: str | None) -> Plan:
    """Store the plan, replacing ``outdated``, and return the stored plan.

    If another attempt of this run stored one first, that plan wins.
    """
    if made.to_account_for:
        ends = run.clusters.ledger.receipt_ends()
        made = replace(made, receipts_from=receipts_from(made, run.view(), ends))
    stored = run.store.start_run(run.run_id, run.replication.name, kind, plan_codec.encode(made), instead_of=outdated)
    return plan_codec.decode(stored.plan, run.run_id)


def begin(run: LeasedRun, request: Request) -> tuple[Snapshot, LedgerView, Plan]:
    """Create missing topics and open every new partition. Both clusters, the ledger, and the plan of live copying then.

    The first look is taken once: a cluster that does not answer fails the run at once. What follows is repeated.
    """
    looks = [_look(run, request)]
    view, snapshot = looks[0]
    raise_findings(findings(run, view, snapshot))
    return run.retry("opening", lambda: _begin(run, request, *(looks.pop() if looks else _look(run, request))))


def _look(run: Run, request: Request) -> tuple[LedgerView, Snapshot]:
    """The ledger, and a snapshot of what is asked for.

    A replication starts all its partitions together: what a first request leaves out would count as appeared later.
    """
    view = run.view()
    return view, run.snapshot(view, _widened(run, view, request))


def _widened(run: Run, view: LedgerView, request: Request) -> Request:
    return request if own(run.replication, view).positions else replace(request, topics=())


def _begin(run: LeasedRun, request: Request, view: LedgerView, snapshot: Snapshot) -> tuple[Snapshot, LedgerView, Plan]:
    run.clusters.ledger.ensure(run.replication)
    snapshot = create_targets(run, view, snapshot, _widened(run, view, request))
    opened, refused = open_new(run, plan(run.replication, snapshot, view, run.watermarks(view)))
    view = replace(view, positions={**view.positions, **opened})
    made = plan(run.replication, snapshot, view, run.watermarks(view))
    return snapshot, view, replace(made, partitions=tuple(refused.get(each.key, each) for each in made.partitions))


def raise_findings(found: list[preflight.Finding]) -> None:
    """Log every finding. Raises PreflightFailed if one of them stops the run."""
    for finding in found:
        log.log(logging.ERROR if finding.severity == "error" else logging.WARNING, "%s", finding)
    preflight.raise_errors(found)


def open_new(run: LeasedRun, made: Plan) -> tuple[Mapping[PartitionKey, Position], dict[PartitionKey, PartitionPlan]]:
    """Commit the start offset of every new partition, so that ``latest`` is never resolved twice.

    Returns all positions that the ledger then has (empty if nothing is new), and the partitions that cannot be opened.
    """
    new = {each.key: each for each in made.partitions if each.state is State.OPENING}
    if not new:
        return {}, {}
    run.check()
    on_existing = run.replication.on_existing_target
    with closing(run.opening()) as opening:
        known = opening.fence()
        left = {key: each for key, each in new.items() if key not in known}
        occupied = opening.occupied(left) if on_existing == "refuse" else {}
        first = not own(run.replication, LedgerView(known)).positions
        refused = refuse_occupied(left.values(), occupied, first=first)
        starts = {
            key: Position(generation=p.generation, ids=p.ids, start=p.start, next_offset=p.start)
            for key, p in left.items()
            if key not in refused
        }
        run.check()
        opened = opening.commit(starts, on_existing)
    for key, position in opened.items():
        log.info("opened %s at offset %d", key, position.start)
    return {**known, **opened}, refused
