"""The steps of a run, put together: snapshot and plan, copy, verify, advance, report.

A DAG task and a command call these same functions; each can be called again after a crash at any moment.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

from kafka_replication.copying.protocol import CopyResult, CopyTask
from kafka_replication.kafka import ledger_topics, topics
from kafka_replication.ledger import entries as ledger
from kafka_replication.ledger.entries import Position, Verified
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import BadInput, ReplicationError, Unreachable
from kafka_replication.model.keys import PartitionKey, opening_id
from kafka_replication.model.offsets import Coverage, OffsetRange
from kafka_replication.model.times import now
from kafka_replication.planning import gaps, preflight
from kafka_replication.planning.created_topics import created_config
from kafka_replication.planning.plan import PartitionPlan, Plan, State, own, plan, refuse_occupied
from kafka_replication.planning.snapshot import Snapshot
from kafka_replication.reporting.report import RangeReport, RunReport, copied_in
from kafka_replication.runs.run import Request, Run
from kafka_replication.runtime import failpoints
from kafka_replication.spark.jobs import Job, JobResult, Launcher
from kafka_replication.verification.verify import VerifyResult, VerifyTask, longest_first, tile
from kafka_replication.watermarks.values import RangeOutcome

log = logging.getLogger(__name__)


def look(run: Run, request: Request) -> tuple[Plan, list[preflight.Finding]]:
    """Plan without touching anything: nothing is created, opened or stored."""
    view = run.view()
    snapshot = run.snapshot(view, request)
    return plan(run.replication, snapshot, view, run.watermarks(view)), findings(run, view, snapshot)


def findings(run: Run, view: LedgerView, snapshot: Snapshot) -> list[preflight.Finding]:
    return preflight.check(run.replication, snapshot, known=bool(view.positions))


def prepare(run: Run, request: Request) -> Plan:
    """Snapshot and plan, after creating what is missing and opening new partitions. The stored plan, if there is one.

    The caller holds the replication's lease. Raises PreflightFailed, Unreachable, Refused, ForeignWriter.
    """
    settle(run)
    known, over = planned_before(run)
    if known is not None:
        return known
    _, _, made = begin(run, request)
    wanted = [each for each in made.partitions if not request.topics or each.key.source.topic in request.topics]
    return store_plan(run, "live", replace(made, partitions=tuple(wanted)), over)


def planned_before(run: Run) -> tuple[Plan | None, str | None]:
    """The stored plan of this run, if there is one: a task that is tried again works on the same ranges.

    Or else what is stored and over: a topic was reset since, and offsets mean other records now.
    """
    stored = run.store.run(run.run_id)
    if stored is None:
        return None, None
    known, view = Plan.decode(stored.plan), run.view()
    anew = next(
        (p.key for p in known.partitions if p.key in view.positions and not view.position(p.key, p.generation)), None
    )
    if anew is not None:
        log.warning("run %s was planned before %s was reset; planning it again", run.run_id, anew)
        return None, stored.plan
    log.info("run %s was planned before; going on with its plan", run.run_id)
    return known, None


def store_plan(run: Run, kind: str, made: Plan, over: str | None) -> Plan:
    """The plan that is stored then, instead of one that is ``over``: another try of this run may have been faster."""
    return Plan.decode(run.store.start_run(run.run_id, run.replication.name, kind, made.encode(), instead_of=over).plan)


def settle(run: Run) -> None:
    """Fence whoever holds the ledger back by an open transaction of this replication: a run that died or sleeps. The
    caller has the lease.

    Else the ledger could not be read before that transaction's time-out, 10 minutes by default.
    """
    if not ledger_topics.ensure(run.target_admin, create=False):
        return
    undecided = sorted(run.ledger.undecided())
    ids = {key.transactional_id: str(key) for key in undecided} | (
        {opening_id(run.replication.name): "opening"} if undecided else {}
    )
    for transactional_id, what in ids.items():
        run.check()
        log.warning("%s: an earlier run may have left a transaction open; fencing it", what)
        with closing(run.writer(transactional_id, what)) as writer:
            writer.fence()


def begin(run: Run, request: Request) -> tuple[Snapshot, LedgerView, Plan]:
    """Create what is missing and open every new partition; what both sides look like then, and what live copying would
    do.
    """
    view = run.view()
    raise_findings(findings(run, view, run.snapshot(view, request)))
    return run.patiently("opening", lambda: _begin(run, request))


def _begin(run: Run, request: Request) -> tuple[Snapshot, LedgerView, Plan]:
    ledger_topics.ensure(run.target_admin)
    view = run.view()
    # A replication begins with all its partitions: those that a first request leaves out would count as appeared later.
    snapshot = create_targets(
        run, view, request if own(run.replication, view).positions else replace(request, topics=())
    )
    opened, refused = open_new(run, plan(run.replication, snapshot, view, run.watermarks(view)))
    view = replace(view, positions={**view.positions, **opened})
    made = plan(run.replication, snapshot, view, run.watermarks(view))
    return snapshot, view, replace(made, partitions=tuple(refused.get(each.key, each) for each in made.partitions))


def raise_findings(found: list[preflight.Finding]) -> None:
    """Log all of them. Raises PreflightFailed where one stops the run."""
    for finding in found:
        log.log(logging.ERROR if finding.severity == "error" else logging.WARNING, "%s", finding)
    preflight.raise_errors(found)


def create_targets(run: Run, view: LedgerView, request: Request) -> Snapshot:
    """Create the target topics that are missing, of topics never replicated before; both sides as they are then."""
    snapshot, settings = run.snapshot(view, request), run.replication.target_topics
    missing = [name for name in snapshot.source if run.replication.target_topic(name) not in snapshot.target]
    opened = {key.source.topic for key in own(run.replication, view).positions}
    created: list[str] = []
    for name in missing:
        if settings.create and name not in opened:
            created.append(run.replication.target_topic(name))
            create_target(run, snapshot, name, created[-1])
    return _await_visible(run, view, request, created) if missing else snapshot


def _await_visible(run: Run, view: LedgerView, request: Request, created: Collection[str]) -> Snapshot:
    """A snapshot that shows the topics just created: brokers may learn of them late, and no position may be opened
    without their ids.
    """
    until = time.monotonic() + run.deadline.within(run.replication.timeouts.request)
    while True:
        snapshot = run.snapshot(view, request)
        hidden = [target for target in created if target not in snapshot.target]
        if not hidden:
            return snapshot
        if time.monotonic() > until:
            raise Unreachable(
                f"the new target topic {hidden[0]} is not known to every broker",
                "check the target's brokers; run again",
            )
        time.sleep(0.1)


def create_target(run: Run, snapshot: Snapshot, name: str, target: str) -> None:
    """Create ``target`` for the source topic ``name``, with as many partitions."""
    settings, partitions = run.replication.target_topics, len(snapshot.source[name].partitions)
    config = created_config(snapshot.source[name].config, settings)
    log.info("creating %s on the target with %d partitions", target, partitions)
    topics.create(run.target_admin, target, partitions, settings.replication_factor, config)


def open_new(run: Run, made: Plan) -> tuple[Mapping[PartitionKey, Position], dict[PartitionKey, PartitionPlan]]:
    """Commit the start of every new partition, so that ``latest`` is never resolved twice; and those that cannot be
    opened.
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
        refused = refuse_occupied(left.values(), occupied, first=not own(run.replication, LedgerView(known)).positions)
        starts = {key: Position(p.generation, p.ids, p.start, p.start) for key, p in left.items() if key not in refused}
        run.check()
        opened = opening.commit(starts, on_existing)
    for key, position in opened.items():
        log.info("opened %s at offset %d", key, position.start)
    return {**known, **opened}, refused


def copy(run: Run, made: Plan, launch: Launcher) -> JobResult:
    """Copy every planned range that is not on the target yet, in bounded rounds, while the lease is ours.

    Another round is for ranges that were fenced, or whose Spark task died: what else may pass by itself, the copier has
    repeated.
    """
    done: dict[PartitionKey, CopyResult] = {}
    left = list(made.to_copy)
    last = JobResult()
    for round_ in range(run.replication.copying.rounds):
        run.check()
        run.deadline.check(f"{made.replication}: copying")
        positions = run.patiently("reading the ledger", run.view).positions
        left = [p for p in left if p.copy and p.key in positions and positions[p.key].left_of(p.copy)]
        if not left:
            break
        tasks = [CopyTask(p.key, p.copy, p.ids, p.generation, run.run_id, p.position) for p in left if p.copy]
        log.info("copying %d ranges, round %d", len(tasks), round_ + 1)
        last = launch(_job(run, "copy", copies=tasks))
        run.patiently("fencing what a dead worker left open", lambda: settle(run))
        done.update({each.key: each for each in last.copies})
        again = {each.key for each in last.copies if each.fenced}
        left = [p for p in left if p.key in again or (last.error and p.key not in {r.key for r in last.copies})]
        if not (left and last.retriable):
            break
    return _record_copies(run, made, done, last)


def _job(run: Run, kind: Any, **tasks: Any) -> Job:
    settings = run.replication
    return Job(
        kind,
        settings.name,
        run.run_id,
        run.source,
        run.target,
        settings.copying,
        parallelism=settings.spark.parallelism,
        seconds=run.deadline.seconds,
        **tasks,
    )


def _record_copies(run: Run, made: Plan, done: dict[PartitionKey, CopyResult], last: JobResult) -> JobResult:
    """Keep what each range's copy said, judged by the ledger: what is not covered has failed, whatever was reported."""
    view = run.patiently("reading the ledger", run.view) if made.to_copy else LedgerView()
    results = []
    for each in made.to_copy:
        assert each.copy is not None
        result = done.get(each.key, CopyResult(each.key, each.copy))
        position = view.position(each.key, each.generation)
        left = position.left_of(each.copy) if position else (each.copy,)
        if left and not result.error:
            what = last.error or f"not copied: {', '.join(map(str, left))}"
            result = replace(result, error=what, remedy=last.remedy or "run again", retriable=last.retriable)
        elif not left:
            result = replace(result, error=None, remedy="")
        results.append(result)
        outcome = RangeOutcome(
            run.run_id,
            each.key,
            each.copy,
            error=result.error,
            remedy=result.remedy or None,
            seconds=result.seconds,
            bytes=result.bytes,
        )
        try:
            run.store.record_outcome(outcome)
        except BadInput:
            # another store stands where ours was: if another run holds the lease there, that is what ends this one
            run.check()
            raise
    return replace(last, copies=results)


def verify(run: Run, keys: Collection[PartitionKey], launch: Launcher) -> list[VerifyResult]:
    """Read back whatever of these partitions is copied and not verified, and write to the ledger what was found
    equal.
    """
    view = run.patiently("reading the ledger", run.view)
    pending = {key: each for key in keys if key in view.positions and (each := _pending(view, key))}
    if not pending:
        return []
    receipts = run.patiently("reading receipts", lambda: run.ledger.receipts(list(pending)))
    tasks, results = [], []
    for key, coverage in pending.items():
        generation = view.positions[key].generation
        try:
            chosen = tile(coverage, (r for r in receipts[key] if r.generation == generation))
            tasks.append(VerifyTask(key, chosen, run.replication.verify.level))
        except ReplicationError as e:
            results.append(VerifyResult(key, Coverage(), error=e.what, remedy=e.remedy))
    if tasks:
        run.check()
        run.deadline.check(f"{run.replication.name}: verifying")
        result = launch(_job(run, "verify", verifications=longest_first(tasks)))
        results += result.verifications
        lost = {task.key for task in tasks} - {each.key for each in result.verifications}
        results += [
            VerifyResult(
                key,
                Coverage(),
                error=result.error or "not verified",
                remedy=result.remedy or "run again",
                retriable=result.retriable,
            )
            for key in sorted(lost)
        ]
    _write_verified(run, view, results)
    return results


def _pending(view: LedgerView, key: PartitionKey) -> Coverage:
    return view.positions[key].coverage.subtract(verified_of(view, key))


def verified_of(view: LedgerView, key: PartitionKey) -> Coverage:
    """What of the current generation was verified, or given up by approval: what the watermark may pass."""
    return view.settled(key, view.positions[key].generation)


def _write_verified(run: Run, view: LedgerView, results: Collection[VerifyResult]) -> None:
    found = {each.key: (view.positions[each.key].generation, each.verified) for each in results if each.verified}
    if found:
        run.patiently("writing what is verified", lambda: _add_verified(run, found))
    failpoints.reached("P4")


def _add_verified(run: Run, found: Mapping[PartitionKey, tuple[int, Coverage]]) -> None:
    """Add to what the ledger says after fencing: a run that lost its lease while it verified takes nothing back."""
    run.check()
    name = run.replication.name
    with closing(run.writer(opening_id(name), f"{name}: writing what is verified")) as writer:
        writer.fence()
        view = run.view()
        writer.begin()
        for key, (generation, coverage) in found.items():
            if view.position(key, generation):
                whole, level = (
                    view.read_back(key, generation).union(coverage),
                    view.level(key, generation, run.replication.verify.level),
                )
                entry = Verified(generation, whole, level, run.run_id, now())
                writer.write(ledger.POSITIONS, key.ledger_partition, ledger.verified_key(key), ledger.encode(entry))
        writer.commit_transaction()


def advance(run: Run, keys: Collection[PartitionKey]) -> dict[PartitionKey, int]:
    """Move each stored watermark to the end of the contiguous verified coverage. Raises StaleWriter."""
    run.check()
    view, stored, moved = run.patiently("reading the ledger", run.view), run.store.watermarks(run.replication.name), {}
    for key in sorted(keys):
        position = view.positions.get(key)
        if position is None:
            continue
        offset = verified_of(view, key).contiguous_end(position.start)
        before = stored.get(key)
        moved[key] = run.store.advance(
            key,
            generation=position.generation,
            source_topic_id=position.ids.source_topic,
            target_topic_id=position.ids.target_topic,
            offset=offset,
            expected_version=before.version if before else None,
            run_id=run.run_id,
        ).offset
    failpoints.reached("P5")
    return moved


def report(run: Run, made: Plan, verified: Collection[VerifyResult] = ()) -> RunReport:
    """The arithmetic of every range of the plan, from the ledger; stored with the run, whose state it closes."""
    view = run.patiently("reading the ledger", run.view)
    watermarks = run.watermarks(view)
    rows = [p for p in made.partitions if p.copy or p.verify or p.refused]
    known = [p.key for p in rows if p.key in view.positions]
    receipts = run.patiently("reading receipts", lambda: run.ledger.receipts(known)) if rows else {}
    outcomes = {(each.key, each.range): each for each in run.store.outcomes(run.run_id)}
    errors = {each.key: each for each in verified if each.error}
    ranges: list[RangeReport] = []
    for each in rows:
        position = view.position(each.key, each.generation)
        settled = verified_of(view, each.key) if position else Coverage()
        advanced = settled.contiguous_end(position.start) if position else 0
        mine = [r for r in receipts.get(each.key, ()) if r.generation == each.generation]
        for range_ in _ranges(each):
            here = copied_in(range_, (r for r in mine if r.run_id == run.run_id))
            before = copied_in(range_, (r for r in mine if r.run_id != run.run_id))
            lost = view.lost(each.key, each.generation).within(range_).span
            seen = position is not None and settled.contains(range_)
            line = RangeReport(
                each.key,
                range_,
                here.records,
                before.records,
                max(0, here.span + before.span - here.records - before.records),
                range_.span - here.span - before.span - lost,
                True if seen else None,
                watermarks.get(each.key),
                here.bytes,
                lost=lost,
            )
            line = _judge(
                line, each, outcomes.get((each.key, range_)), errors.get(each.key), run.replication.verify.level
            )
            unproven = line.digest_ok and view.unproven(each.key, each.generation).within(range_)
            ranges.append(_stored(replace(line, digest_ok=None) if unproven else line, advanced))
    made_report = RunReport(run.replication.name, run.run_id, tuple(ranges), gaps=gaps.listed(view.gaps))
    _store(run, made_report)
    return made_report


def _ranges(each: PartitionPlan) -> list[OffsetRange]:
    if each.refused:
        return [OffsetRange(each.position, max(each.position, each.source_end))]
    return [*each.verify, *([each.copy] if each.copy else [])]


def _judge(
    line: RangeReport, each: PartitionPlan, copied: RangeOutcome | None, verified: VerifyResult | None, level: str
) -> RangeReport:
    """Add what went wrong: the plan's refusal, the copy's error, the verification's; and never call unverified offsets
    done.
    """
    line = replace(line, seconds=copied.seconds if copied else 0.0)
    if each.refused:
        return replace(line, error=each.what, remedy=each.remedy)
    if verified and not line.digest_ok:
        return replace(line, digest_ok=False, error=verified.error, remedy=verified.remedy)
    if copied and copied.error:
        return replace(line, digest_ok=None, error=copied.error, remedy=copied.remedy or "")
    if not line.digest_ok:
        return replace(line, error=f"{each.key.source} {line.range} is not verified", remedy="run again")
    return line if level == "digest" else replace(line, digest_ok=None)


def _stored(line: RangeReport, verified: int) -> RangeReport:
    """What is verified and not stored is not done either: the advance step failed."""
    if line.error or (line.watermark is not None and line.watermark >= verified):
        return line
    what = f"{line.key.source} is verified up to {verified}, but the stored watermark is {line.watermark}"
    return replace(line, error=what, remedy="run again, which stores it; the log of advance says why it was not")


def _store(run: Run, made: RunReport) -> None:
    if run.store.run(run.run_id) is None:
        return
    for line in made.ranges:
        run.store.record_outcome(
            RangeOutcome(
                run.run_id,
                line.key,
                line.range,
                line.copied,
                line.not_visible,
                line.digest_ok,
                run.replication.verify.level,
                line.watermark,
                line.error,
                line.remedy or None,
                line.seconds,
                line.bytes,
            )
        )
    run.store.finish_run(run.run_id, made.outcome)
