"""The steps of a run, put together: snapshot and plan, copy, verify, advance, report.

A DAG task and a command call these same functions; each can be called again after a crash at any moment.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any, TypeVar

from kafka_replication import failpoints, gaps, preflight
from kafka_replication.config import Replication
from kafka_replication.connections import Connections
from kafka_replication.copy import CopyResult, CopyTask, now
from kafka_replication.deadline import Deadline, patiently
from kafka_replication.errors import ReplicationError, Unreachable
from kafka_replication.jobs import Job, JobResult, Launcher
from kafka_replication.kafka import AdminClient, clients, ledger_topics, snapshotter, topics
from kafka_replication.kafka.opening import Opening
from kafka_replication.kafka.transactions import TransactionalWriter
from kafka_replication.keys import PartitionKey, opening_id
from kafka_replication.ledger import Position, Verified
from kafka_replication.offsets import Coverage, OffsetRange
from kafka_replication.plan import PartitionPlan, Plan, State, own, plan, refuse_occupied
from kafka_replication.report import RangeReport, RunReport, copied_in
from kafka_replication.snapshot import LedgerView, Snapshot
from kafka_replication.verify import VerifyResult, VerifyTask, longest_first, tile
from kafka_replication.watermarks import RangeOutcome, WatermarkStore

log = logging.getLogger(__name__)
T = TypeVar("T")
Check = Callable[[], None]  # raises Busy once the lease is lost


@dataclass(frozen=True, slots=True)
class Request:
    """What a trigger may ask for: some of the topics only, an end in time, and only to look."""

    topics: tuple[str, ...] = ()
    until: datetime | None = None
    dry_run: bool = False


@dataclass
class Run:
    """One run of one replication, with the outside world it works on."""

    replication: Replication
    connections: Connections
    store: WatermarkStore
    run_id: str
    check: Check = field(default=lambda: None)
    deadline: Deadline = field(default_factory=Deadline)

    @cached_property
    def source(self) -> dict[str, Any]:
        name = self.replication.source.connection
        return clients.check_connection(name, self.connections.kafka(name))

    @cached_property
    def target(self) -> dict[str, Any]:
        name = self.replication.target.connection
        return clients.check_connection(name, self.connections.kafka(name))

    @cached_property
    def source_admin(self) -> AdminClient:
        return clients.admin(self.source, self.replication.timeouts.request * 0.6)

    @cached_property
    def target_admin(self) -> AdminClient:
        return clients.admin(self.target, self.replication.timeouts.request * 0.6)

    @cached_property
    def ledger(self) -> ledger_topics.LedgerReader:
        return ledger_topics.LedgerReader(self.target, self.target_admin, self.replication.name, self.deadline)

    def patiently(self, doing: str, call: Callable[[], T]) -> T:
        """Repeat a step's call to a cluster that answered before, within the run's time: brokers are restarted, leaders move."""
        return patiently(f"{self.replication.name}: {doing}", call, self.deadline, self.replication.copying.attempts)

    def watermarks(self, view: LedgerView | None = None) -> dict[PartitionKey, int]:
        """Where the store stands; a watermark of an earlier generation than the ledger's is over: a reset died before it moved it."""
        positions = (self.view() if view is None else view).positions
        found = self.store.watermarks(self.replication.name).items()
        return {key: each.offset for key, each in found if key not in positions or each.generation >= positions[key].generation}

    def view(self) -> LedgerView:
        """What the ledger says; empty where it does not exist yet."""
        return self.ledger.view() if ledger_topics.ensure(self.target_admin, create=False) else LedgerView()

    def snapshot(self, view: LedgerView, request: Request = Request()) -> Snapshot:
        mine = own(self.replication, view).positions
        known, others = {key.source for key in mine}, {key.target_topic for key in view.positions if key not in mine}
        return snapshotter.take(self.replication, self.source_admin, self.target_admin, request.topics, request.until, known, others)


def look(run: Run, request: Request) -> tuple[Plan, list[preflight.Finding]]:
    """Plan without touching anything: nothing is created, opened or stored."""
    view = run.view()
    snapshot = run.snapshot(view, request)
    findings = preflight.check(run.replication, snapshot, known=bool(view.positions))
    return plan(run.replication, snapshot, view, run.watermarks(view)), findings


def prepare(run: Run, request: Request) -> Plan:
    """Snapshot and plan, after creating what is missing and opening new partitions. The stored plan, if there is one.

    The caller holds the replication's lease. Raises PreflightFailed, Unreachable, Refused, ForeignWriter.
    """
    known = run.store.run(run.run_id)
    if known is not None:
        log.info("run %s was planned before; going on with its plan", run.run_id)
        return Plan.decode(known.plan)
    settle(run)
    _, _, made = begin(run, request)
    wanted = [each for each in made.partitions if not request.topics or each.key.source.topic in request.topics]
    return Plan.decode(run.store.start_run(run.run_id, run.replication.name, "live", replace(made, partitions=tuple(wanted)).encode()).plan)


def settle(run: Run) -> None:
    """Fence whoever holds the ledger back by an open transaction of this replication: a run that died or sleeps. The caller has the lease.

    Else the ledger could not be read before that transaction's time-out, 10 minutes by default.
    """
    if not ledger_topics.ensure(run.target_admin, create=False):
        return
    undecided = sorted(run.ledger.undecided())
    ids = {key.transactional_id: str(key) for key in undecided} | ({opening_id(run.replication.name): "opening"} if undecided else {})
    for transactional_id, what in ids.items():
        run.check()
        log.warning("%s: an earlier run may have left a transaction open; fencing it", what)
        with closing(TransactionalWriter(transactional_id, what, run.target, run.replication.copying, run.deadline)) as writer:
            writer.fence()


def begin(run: Run, request: Request) -> tuple[Snapshot, LedgerView, Plan]:
    """Create what is missing and open every new partition; what both sides look like then, and what live copying would do."""
    _, findings = look(run, request)
    raise_findings(findings)
    return run.patiently("opening", lambda: _begin(run, request))


def _begin(run: Run, request: Request) -> tuple[Snapshot, LedgerView, Plan]:
    ledger_topics.ensure(run.target_admin)
    view = run.view()
    # A replication begins with all its partitions: those that a first request leaves out would count as appeared later.
    snapshot = create_targets(run, view, request if own(run.replication, view).positions else replace(request, topics=()))
    opened, refused = open_new(run, plan(run.replication, snapshot, view, run.watermarks(view)))
    view = replace(view, positions={**view.positions, **opened})
    made = plan(run.replication, snapshot, view, run.watermarks(view))
    return snapshot, view, replace(made, partitions=tuple(refused.get(each.key, each) for each in made.partitions))


def raise_findings(findings: list[preflight.Finding]) -> None:
    """Log all of them. Raises PreflightFailed where one stops the run."""
    for finding in findings:
        log.log(logging.ERROR if finding.severity == "error" else logging.WARNING, "%s", finding)
    preflight.raise_errors(findings)


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
    """A snapshot that shows the topics just created: brokers may learn of them late, and no position may be opened without their ids."""
    until = time.monotonic() + run.deadline.within(run.replication.timeouts.request)
    while True:
        snapshot = run.snapshot(view, request)
        hidden = [target for target in created if target not in snapshot.target]
        if not hidden:
            return snapshot
        if time.monotonic() > until:
            raise Unreachable(f"the new target topic {hidden[0]} is not known to every broker", "check the target's brokers; run again")
        time.sleep(0.1)


def create_target(run: Run, snapshot: Snapshot, name: str, target: str) -> None:
    """Create ``target`` for the source topic ``name``, with as many partitions."""
    settings, partitions = run.replication.target_topics, len(snapshot.source[name].partitions)
    config = {"min.compaction.lag.ms": str(settings.min_compaction_lag * 1000), **_limits(snapshot, name), **settings.config}
    log.info("creating %s on the target with %d partitions", target, partitions)
    topics.create(run.target_admin, target, partitions, settings.replication_factor, config)


_SAME_AS_SOURCE = ("max.message.bytes", "cleanup.policy", "retention.ms", "retention.bytes")


def _limits(snapshot: Snapshot, name: str) -> dict[str, str]:
    """A created topic takes what the source takes, and keeps it as long."""
    config = snapshot.source[name].config
    return {key: config[key] for key in _SAME_AS_SOURCE if key in config}


def open_new(run: Run, made: Plan) -> tuple[Mapping[PartitionKey, Position], dict[PartitionKey, PartitionPlan]]:
    """Commit the start of every new partition, so that ``latest`` is never resolved twice; and those that cannot be opened."""
    new = {each.key: each for each in made.partitions if each.state is State.OPENING}
    if not new:
        return {}, {}
    run.check()
    on_existing = run.replication.on_existing_target
    opening = Opening(run.replication.name, run.target, run.target_admin, run.replication.copying, run.deadline)
    try:
        known = opening.fence()
        left = {key: each for key, each in new.items() if key not in known}
        occupied = opening.occupied(left) if on_existing == "refuse" else {}
        refused = refuse_occupied(left.values(), occupied, first=not own(run.replication, LedgerView(known)).positions)
        starts = {key: Position(p.generation, p.ids, p.start, p.start) for key, p in left.items() if key not in refused}
        run.check()
        opened = opening.commit(starts, on_existing)
    finally:
        opening.close()
    for key, position in opened.items():
        log.info("opened %s at offset %d", key, position.start)
    return {**known, **opened}, refused


def copy(run: Run, made: Plan, launch: Launcher) -> JobResult:
    """Copy every planned range that is not on the target yet, in bounded rounds, while the lease is ours.

    Another round is for ranges that were fenced, or whose Spark task died: what else may pass by itself, the copier has repeated.
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
        kind, settings.name, run.run_id, run.source, run.target, settings.copying, parallelism=settings.spark.parallelism,
        seconds=run.deadline.seconds, **tasks,
    )  # fmt: skip


def _record_copies(run: Run, made: Plan, done: dict[PartitionKey, CopyResult], last: JobResult) -> JobResult:
    """Keep what each range's copy said, judged by the ledger: what is not covered has failed, whatever was reported."""
    positions = run.patiently("reading the ledger", run.view).positions if made.to_copy else {}
    results = []
    for each in made.to_copy:
        assert each.copy is not None
        result = done.get(each.key, CopyResult(each.key, each.copy))
        position = positions.get(each.key)
        left = position.left_of(each.copy) if position else (each.copy,)
        if left and not result.error:
            what = last.error or f"not copied: {', '.join(map(str, left))}"
            result = replace(result, error=what, remedy=last.remedy or "run again", retriable=last.retriable)
        elif not left:
            result = replace(result, error=None, remedy="")
        results.append(result)
        run.store.record_outcome(_outcome(run, each.key, each.copy, result.error, result.remedy, result.seconds, result.bytes))
    return replace(last, copies=results)


def _outcome(
    run: Run, key: PartitionKey, range_: OffsetRange, error: str | None, remedy: str, seconds: float = 0.0, size: int = 0
) -> RangeOutcome:
    return RangeOutcome(run.run_id, key, range_, error=error, remedy=remedy or None, seconds=seconds, bytes=size)


def verify(run: Run, keys: Collection[PartitionKey], launch: Launcher) -> list[VerifyResult]:
    """Read back whatever of these partitions is copied and not verified, and write to the ledger what was found equal."""
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
                key, Coverage(), error=result.error or "not verified", remedy=result.remedy or "run again", retriable=result.retriable
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
    entries = {}
    for each in results:
        if each.verified:
            generation = view.positions[each.key].generation
            coverage = view.read_back(each.key, generation).union(each.verified)
            entries[each.key] = Verified(generation, coverage, run.replication.verify.level, run.run_id, now())
    run.patiently("writing what is verified", lambda: ledger_topics.write_verified(run.target, entries))
    failpoints.reached("P4")


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
            key, generation=position.generation, source_topic_id=position.ids.source_topic, target_topic_id=position.ids.target_topic,
            offset=offset, expected_version=before.version if before else None, run_id=run.run_id,
        ).offset  # fmt: skip
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
        position = view.positions.get(each.key)
        advanced = verified_of(view, each.key).contiguous_end(position.start) if position else 0
        for range_ in _ranges(each):
            mine = [r for r in receipts.get(each.key, ()) if r.generation == each.generation]
            here = copied_in(range_, (r for r in mine if r.run_id == run.run_id))
            before = copied_in(range_, (r for r in mine if r.run_id != run.run_id))
            lost = view.lost(each.key, each.generation).within(range_).span
            seen = verified_of(view, each.key).contains(range_) if each.key in view.positions else False
            line = RangeReport(
                each.key, range_, here.records, before.records, max(0, here.span + before.span - here.records - before.records),
                range_.span - here.span - before.span - lost, True if seen else None, watermarks.get(each.key), here.bytes, lost=lost,
            )  # fmt: skip
            line = _judge(line, each, outcomes.get((each.key, range_)), errors.get(each.key), run.replication.verify.level)
            unproven = line.digest_ok and view.unproven(each.key, each.generation).within(range_)
            ranges.append(_stored(replace(line, digest_ok=None) if unproven else line, advanced))
    made_report = RunReport(run.replication.name, run.run_id, tuple(ranges), gaps=gaps.listed(view.gaps))
    _store(run, made_report)
    return made_report


def _ranges(each: PartitionPlan) -> list[OffsetRange]:
    if each.refused:
        return [OffsetRange(each.position, max(each.position, each.source_end))]
    return [*each.verify, *([each.copy] if each.copy else [])]


def _judge(line: RangeReport, each: PartitionPlan, copied: RangeOutcome | None, verified: VerifyResult | None, level: str) -> RangeReport:
    """Add what went wrong: the plan's refusal, the copy's error, the verification's; and never call unverified offsets done."""
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
        run.store.record_outcome(RangeOutcome(
            run.run_id, line.key, line.range, line.copied, line.not_visible, line.digest_ok, run.replication.verify.level,
            line.watermark, line.error, line.remedy or None, line.seconds, line.bytes,
        ))  # fmt: skip
    run.store.finish_run(run.run_id, made.outcome)
