"""The steps of a run, put together: snapshot and plan, copy, verify, advance, report.

A DAG task and a command call these same functions; each can be called again after a crash at any moment.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from kafka_replication import failpoints, preflight
from kafka_replication.config import Replication
from kafka_replication.connections import Connections
from kafka_replication.copy import CopyResult, CopyTask, now
from kafka_replication.errors import Refused, ReplicationError, Unreachable
from kafka_replication.jobs import Job, JobResult, Launcher
from kafka_replication.kafka import AdminClient, clients, ledger_topics, snapshotter, topics
from kafka_replication.kafka.session import LedgerSession, open_partition
from kafka_replication.keys import PartitionKey
from kafka_replication.ledger import Position, Verified
from kafka_replication.offsets import Coverage, OffsetRange
from kafka_replication.plan import PartitionPlan, Plan, State, plan
from kafka_replication.report import RangeReport, RunReport, copied_in
from kafka_replication.snapshot import LedgerView, Snapshot
from kafka_replication.verify import VerifyResult, VerifyTask, longest_first, tile
from kafka_replication.watermarks import RangeOutcome, WatermarkStore

log = logging.getLogger(__name__)
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
        return ledger_topics.LedgerReader(self.target, self.target_admin, self.replication.name)

    def watermarks(self) -> dict[PartitionKey, int]:
        return {key: watermark.offset for key, watermark in self.store.watermarks(self.replication.name).items()}

    def view(self) -> LedgerView:
        """What the ledger says; empty where it does not exist yet."""
        return self.ledger.view() if ledger_topics.ensure(self.target_admin, create=False) else LedgerView()

    def snapshot(self, view: LedgerView, request: Request = Request()) -> Snapshot:
        known = {key.source for key in view.positions}
        return snapshotter.take(self.replication, self.source_admin, self.target_admin, request.topics, request.until, known)


def look(run: Run, request: Request) -> tuple[Plan, list[preflight.Finding]]:
    """Plan without touching anything: nothing is created, opened or stored."""
    view = run.view()
    snapshot = run.snapshot(view, request)
    findings = preflight.check(run.replication, snapshot, known=bool(view.positions))
    return plan(run.replication, snapshot, view, run.watermarks()), findings


def prepare(run: Run, request: Request) -> Plan:
    """Snapshot and plan, after creating what is missing and opening new partitions. The stored plan, if there is one.

    The caller holds the replication's lease. Raises PreflightFailed, Unreachable, Refused, ForeignWriter.
    """
    known = run.store.run(run.run_id)
    if known is not None:
        log.info("run %s was planned before; going on with its plan", run.run_id)
        return Plan.decode(known.plan)
    settle(run)
    _, findings = look(run, request)
    for finding in findings:
        log.log(logging.ERROR if finding.severity == "error" else logging.WARNING, "%s", finding)
    preflight.raise_errors(findings)
    ledger_topics.ensure(run.target_admin)
    view = run.view()
    snapshot = _create_targets(run, view, request)
    opened, failed = _open(run, plan(run.replication, snapshot, view, run.watermarks()))
    made = plan(run.replication, snapshot, LedgerView({**view.positions, **opened}, view.verified), run.watermarks())
    made = replace(made, partitions=tuple(_refuse(each, failed[each.key]) if each.key in failed else each for each in made.partitions))
    return Plan.decode(run.store.start_run(run.run_id, run.replication.name, "live", made.encode()).plan)


def settle(run: Run) -> None:
    """Fence whoever holds the ledger back by an open transaction of this replication: a run that died or sleeps. The caller has the lease.

    Else the ledger could not be read before that transaction's time-out, 10 minutes by default.
    """
    if not ledger_topics.ensure(run.target_admin, create=False):
        return
    for key in sorted(run.ledger.undecided()):
        run.check()
        log.warning("%s: an earlier run left a transaction open; fencing it", key)
        session = LedgerSession(key, run.source, run.target, run.replication.copying)
        try:
            session.fence()
        finally:
            session.close()


def _create_targets(run: Run, view: LedgerView, request: Request) -> Snapshot:
    snapshot, settings = run.snapshot(view, request), run.replication.target_topics
    missing = [name for name in snapshot.source if run.replication.target_topic(name) not in snapshot.target]
    opened = {key.source.topic for key in view.positions}
    created: list[str] = []
    for name in missing:
        if settings.create and name not in opened:
            config = {"min.compaction.lag.ms": str(settings.min_compaction_lag * 1000), **_limits(snapshot, name), **settings.config}
            target = run.replication.target_topic(name)
            log.info("creating %s on the target with %d partitions", target, len(snapshot.source[name].partitions))
            topics.create(run.target_admin, target, len(snapshot.source[name].partitions), settings.replication_factor, config)
            created.append(target)
    return _await_visible(run, view, request, created) if missing else snapshot


def _await_visible(run: Run, view: LedgerView, request: Request, created: Collection[str]) -> Snapshot:
    """A snapshot that shows the topics just created: brokers may learn of them late, and no position may be opened without their ids."""
    until = time.monotonic() + run.replication.timeouts.request
    while True:
        snapshot = run.snapshot(view, request)
        hidden = [target for target in created if target not in snapshot.target]
        if not hidden:
            return snapshot
        if time.monotonic() > until:
            raise Unreachable(f"the new target topic {hidden[0]} is not known to every broker", "check the target's brokers; run again")
        time.sleep(0.1)


_SAME_AS_SOURCE = ("max.message.bytes", "cleanup.policy", "retention.ms", "retention.bytes")


def _limits(snapshot: Snapshot, name: str) -> dict[str, str]:
    """A created topic takes what the source takes, and keeps it as long."""
    config = snapshot.source[name].config
    return {key: config[key] for key in _SAME_AS_SOURCE if key in config}


def _open(run: Run, made: Plan) -> tuple[dict[PartitionKey, Position], dict[PartitionKey, ReplicationError]]:
    """Commit the start of every new partition, so that ``latest`` is never resolved twice."""
    opened: dict[PartitionKey, Position] = {}
    failed: dict[PartitionKey, ReplicationError] = {}
    for each in (p for p in made.partitions if p.state is State.OPENING):
        run.check()
        session = LedgerSession(each.key, run.source, run.target, run.replication.copying)
        try:
            opened[each.key] = open_partition(
                session, Position(each.generation, each.ids, each.start, each.start), run.replication.target_topics.on_existing
            )
            log.info("opened %s at offset %d", each.key, opened[each.key].start)
        except Refused as e:
            failed[each.key] = e
        finally:
            session.close()
    return opened, failed


def _refuse(each: PartitionPlan, error: ReplicationError) -> PartitionPlan:
    return replace(each, state=State.NOT_OPENED, copy=None, what=error.what, remedy=error.remedy)


def copy(run: Run, made: Plan, launch: Launcher) -> JobResult:
    """Copy every planned range that is not on the target yet; fenced ones again, in bounded rounds, while the lease is ours."""
    done: dict[PartitionKey, CopyResult] = {}
    left = list(made.to_copy)
    error = None
    for round_ in range(run.replication.copying.rounds):
        run.check()
        positions = run.view().positions
        left = [p for p in left if p.copy and p.key in positions and positions[p.key].left_of(p.copy)]
        if not left:
            break
        tasks = [CopyTask(p.key, p.copy, p.ids, p.generation, run.run_id) for p in left if p.copy]
        log.info("copying %d ranges, round %d", len(tasks), round_ + 1)
        result = launch(_job(run, "copy", copies=tasks))
        done.update({each.key: each for each in result.copies})
        error = result.error
        again = {each.key for each in result.copies if each.retriable}
        left = [p for p in left if p.key in again or (error and p.key not in {r.key for r in result.copies})]
    return _record_copies(run, made, done, error)


def _job(run: Run, kind: Any, **tasks: Any) -> Job:
    settings = run.replication
    return Job(kind, settings.name, run.run_id, run.source, run.target, settings.copying, parallelism=settings.spark.parallelism, **tasks)


def _record_copies(run: Run, made: Plan, done: dict[PartitionKey, CopyResult], error: str | None) -> JobResult:
    """Keep what each range's copy said, judged by the ledger: what is not covered has failed, whatever was reported."""
    positions = run.view().positions if made.to_copy else {}
    results = []
    for each in made.to_copy:
        assert each.copy is not None
        result = done.get(each.key, CopyResult(each.key, each.copy))
        position = positions.get(each.key)
        left = position.left_of(each.copy) if position else (each.copy,)
        if left and not result.error:
            result = replace(result, error=error or f"not copied: {', '.join(map(str, left))}", remedy="run again", retriable=True)
        elif not left:
            result = replace(result, error=None, remedy="")
        results.append(result)
        run.store.record_outcome(_outcome(run, each.key, each.copy, result.error, result.remedy, result.seconds, result.bytes))
    return JobResult(copies=results, error=error)


def _outcome(
    run: Run, key: PartitionKey, range_: OffsetRange, error: str | None, remedy: str, seconds: float = 0.0, size: int = 0
) -> RangeOutcome:
    return RangeOutcome(run.run_id, key, range_, error=error, remedy=remedy or None, seconds=seconds, bytes=size)


def verify(run: Run, keys: Collection[PartitionKey], launch: Launcher) -> list[VerifyResult]:
    """Read back whatever of these partitions is copied and not verified, and write to the ledger what was found equal."""
    view = run.view()
    pending = {key: each for key in keys if key in view.positions and (each := _pending(view, key))}
    if not pending:
        return []
    receipts = run.ledger.receipts(list(pending))
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
        result = launch(_job(run, "verify", verifications=longest_first(tasks)))
        results += result.verifications
        lost = {task.key for task in tasks} - {each.key for each in result.verifications}
        results += [VerifyResult(key, Coverage(), error=result.error or "not verified", remedy="run again") for key in sorted(lost)]
    _write_verified(run, view, results)
    return results


def _pending(view: LedgerView, key: PartitionKey) -> Coverage:
    return view.positions[key].coverage.subtract(verified_of(view, key))


def verified_of(view: LedgerView, key: PartitionKey) -> Coverage:
    """What of the current generation was verified."""
    entry = view.verified.get(key)
    return entry.coverage if entry and entry.generation == view.positions[key].generation else Coverage()


def _write_verified(run: Run, view: LedgerView, results: Collection[VerifyResult]) -> None:
    entries = {}
    for each in results:
        if each.verified:
            coverage = verified_of(view, each.key).union(each.verified)
            entries[each.key] = Verified(view.positions[each.key].generation, coverage, run.replication.verify.level, run.run_id, now())
    ledger_topics.write_verified(run.target, entries)
    failpoints.reached("P4")


def advance(run: Run, keys: Collection[PartitionKey]) -> dict[PartitionKey, int]:
    """Move each stored watermark to the end of the contiguous verified coverage. Raises StaleWriter."""
    run.check()
    view, stored, moved = run.view(), run.store.watermarks(run.replication.name), {}
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
    view, watermarks = run.view(), run.watermarks()
    rows = [p for p in made.partitions if p.copy or p.verify or p.refused]
    receipts = run.ledger.receipts([p.key for p in rows if p.key in view.positions]) if rows else {}
    outcomes = {(each.key, each.range): each for each in run.store.outcomes(run.run_id)}
    errors = {each.key: each for each in verified if each.error}
    ranges: list[RangeReport] = []
    for each in rows:
        for range_ in _ranges(each):
            mine = [r for r in receipts.get(each.key, ()) if r.generation == each.generation]
            here = copied_in(range_, (r for r in mine if r.run_id == run.run_id))
            before = copied_in(range_, (r for r in mine if r.run_id != run.run_id))
            seen = verified_of(view, each.key).contains(range_) if each.key in view.positions else False
            line = RangeReport(
                each.key, range_, here.records, before.records, max(0, here.span + before.span - here.records - before.records),
                range_.span - here.span - before.span, True if seen else None, watermarks.get(each.key), here.bytes,
            )  # fmt: skip
            ranges.append(_judge(line, each, outcomes.get((each.key, range_)), errors.get(each.key), run.replication.verify.level))
    made_report = RunReport(run.replication.name, run.run_id, tuple(ranges))
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


def _store(run: Run, made: RunReport) -> None:
    if run.store.run(run.run_id) is None:
        return
    for line in made.ranges:
        run.store.record_outcome(RangeOutcome(
            run.run_id, line.key, line.range, line.copied, line.not_visible, line.digest_ok, run.replication.verify.level,
            line.watermark, line.error, line.remedy or None, line.seconds, line.bytes,
        ))  # fmt: skip
    run.store.finish_run(run.run_id, made.outcome)
