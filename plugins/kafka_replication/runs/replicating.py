"""The step that works: each partition is copied, read back and advanced by itself, while others still copy."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from kafka_replication.copying.engine import CopyResult, CopyTask
from kafka_replication.ledger.entries import Position
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import Refused, ReplicationError
from kafka_replication.model.offsets import OffsetRange, PartitionKey
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning import schemas
from kafka_replication.planning.backfill_plan import next_slice
from kafka_replication.planning.plan import PartitionPlan, Plan
from kafka_replication.reporting.arithmetic import NotDone
from kafka_replication.reporting.progress import Work, work_of
from kafka_replication.runs.bookkeeping import Bookkeeper, advance_each
from kafka_replication.runs.fencing import fence_stale_producers
from kafka_replication.runs.progress import Watch
from kafka_replication.runs.run import LeasedRun, Run
from kafka_replication.runtime.events import Event, log_event
from kafka_replication.spark.jobs import Job, JobEnd, RangeTask, longest_first, without_result
from kafka_replication.spark.launcher import Launcher
from kafka_replication.verification.auditing import Audit
from kafka_replication.verification.read_back import ReadBackTask
from kafka_replication.verification.verify import VerifyResult
from kafka_replication.watermarks.sight import BYTES, RECORDS, RETRIES, THROTTLED, Total

log = logging.getLogger(__name__)
ROUNDS = 3  # jobs for a task: twice a newer copier or a dead worker may have been chance, a third time it is not
LONGEST_WAIT = 7 * 86_400.0  # seconds; what a run without a time budget waits for others at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicated:
    """The result of a plan: ``copied`` has one result for each range to copy, ``read_back`` one for each partition
    that was read back. The ledger decides which copies have an error. ``not_advanced`` has the reason for each
    watermark that could not be moved. ``retries`` are sessions beyond the first one of each range and slice: after an
    error, or because another engine took over.
    """

    copied: Sequence[CopyResult] = ()
    read_back: Sequence[VerifyResult] = ()
    retries: int = 0
    not_advanced: Mapping[PartitionKey, Refused] = field(default_factory=dict)

    @property
    def not_copied(self) -> list[CopyResult]:
        return [result for result in self.copied if result.error]

    @property
    def not_verified(self) -> list[VerifyResult]:
        return [result for result in self.read_back if result.error]

    @property
    def not_done(self) -> NotDone:
        """The reasons that the report needs."""
        refused = ((key, Trouble.of(error)) for key, error in self.not_advanced.items())
        turns = ((result.key, result.turns) for result in self.copied if result.turns)
        return NotDone(not_verified=tuple(self.not_verified), not_advanced=tuple(refused), turns=tuple(turns))

    @property
    def records(self) -> int:
        return sum(result.copied for result in self.copied)

    @property
    def bytes(self) -> int:
        return sum(result.bytes for result in self.copied)

    @property
    def totals(self) -> dict[str, float]:
        """The amounts that metrics count, by the names that they have there."""
        throttled = sum(result.throttled for result in self.copied)  # seconds, of all ranges together
        return {RECORDS: self.records, BYTES: self.bytes, RETRIES: self.retries, THROTTLED: throttled}


def replicate(run: LeasedRun, plan: Plan, spark: Launcher) -> Replicated:
    """Copy what is left of every planned range, at most ``max_records_per_run`` offsets of a partition at a time; read
    back what is on the target and not verified; and move the watermarks.

    Called again after a crash, it continues where the ledger ends. Failures are recorded with the run, or returned.
    Raises Refused for a plan that was made with other settings.
    """
    if changed := plan.changed(run.planned_with):
        raise Refused(
            f"{plan.replication}: {', '.join(changed)} in the file changed after run {run.run_id} was planned: its plan"
            " might copy what one of today refuses",
            "clear the task plan of this run, which plans it again; on the command line, run again",
        )
    if not plan.idle:
        run.retry("fencing", lambda: fence_stale_producers(run))
    work = _Work(run, plan, spark, run.retry("reading the ledger", run.view))
    if not plan.idle:
        work.carry_out()
    _, not_advanced = advance_each(run, plan.workable, work.view)
    for error in not_advanced.values():
        log.error("%s", error)
    done = replace(work.done(), not_advanced=not_advanced)
    totals = {Total(name): float(amount) for name, amount in done.totals.items() if amount}
    try:
        run.store.add_totals(run.replication.name, totals, run.run_id, random.random())
    except ReplicationError as problem:  # no reason for a run to fail
        log.warning("%s: what was copied is missing in the metrics: %s", run.replication.name, problem)
    return done


def verify(run: LeasedRun, keys: Collection[PartitionKey], spark: Launcher) -> Sequence[VerifyResult]:
    """Read back what is on the target and not verified of these partitions, and move their watermarks."""
    work = _Work(run, Plan(run.replication.name, ()), spark, run.retry("reading the ledger", run.view))
    work.read_back(keys)
    return work.done().read_back


class _Work:
    """One plan, or a reading back without a plan, in progress."""

    def __init__(self, run: LeasedRun, plan: Plan, spark: Launcher, view: LedgerView) -> None:
        self._run, self._plan, self._spark = run, plan, spark
        self._book = Bookkeeper(run, plan)
        self._end = JobEnd()  # of the last job
        self.view = view  # the ledger after the last job, or before the first one
        self._watch: Watch | None = None

    def carry_out(self) -> None:
        """Slice after slice, until every range is on the target or has failed: first the topic of a schema registry,
        for which the others wait.
        """
        mine = [planned for planned in self._plan.partitions if planned.key.source.topic == schemas.TOPIC]
        self.read_back([planned.key for planned in mine if planned.verify and not planned.copy])
        number = 0
        while part := self._next_slice():
            number += 1
            if number > 1 and self._give_way() and not (part := self._next_slice()):
                break
            if len(part) < len(self._plan.to_copy) or number > 1:
                log.info("%s", _slice_text(self._plan, self.view.positions, number, part))
            self._do([self._copying(planned) for planned in part])
        self.read_back(self._plan.workable)
        if schemas.is_refused(self._plan, self._book.failed):
            waiting = [self._copying(planned) for planned in self._left if planned.key.source.topic != schemas.TOPIC]
            self._book.enter([without_result(task, schemas.WAITS, schemas.WAITS_REMEDY) for task in waiting])
        self._book.judge(self.view, self._end)

    def _give_way(self) -> bool:
        """Let those work who wait for this run's topics. Returns whether somebody did; the ledger is read anew."""
        run = self._run
        if not run.hold.give_way(run.deadline.within(LONGEST_WAIT)):
            return False
        run.retry("fencing", lambda: fence_stale_producers(run))
        self._read_ledger()
        return True

    def read_back(self, keys: Collection[PartitionKey]) -> None:
        """Read back what is pending of those that were not read back yet: copied by an earlier run, or in an earlier
        slice.
        """
        known = self.view.positions
        left = [key for key in keys if key in known and key not in self._book.failed and self.view[key].pending()]
        self._do([RangeTask(read_back=self._reading(key, known[key].generation)) for key in left])

    def done(self) -> Replicated:
        return Replicated(copied=self._book.copied, read_back=self._book.read_back, retries=self._book.retries)

    @property
    def patience(self) -> float:
        """Seconds that a step may take which is no copying and no reading back."""
        return self._run.patience_after_failure if self._book.failed else math.inf

    def _read_ledger(self) -> None:
        self.view = self._run.retry("reading the ledger", self._run.view, self.patience)

    def _next_slice(self) -> Sequence[PartitionPlan]:
        return schemas.in_turn(self._left, refused=schemas.is_refused(self._plan, self._book.failed))

    @property
    def _left(self) -> Sequence[PartitionPlan]:
        """The next slice of each range that is not on the target and has not failed."""
        most = self._run.replication.max_records_per_run
        return next_slice(self._plan, self.view.positions, most, self._book.failed).partitions

    def _do(self, tasks: Sequence[RangeTask]) -> None:
        """Run the tasks in at most `ROUNDS` jobs.

        A further round repeats tasks that were fenced or have no result. The worker itself retries all other retriable
        errors.
        """
        left = longest_first(tasks)
        for round_ in range(ROUNDS):
            if not left:
                return
            self._run.check()
            self._run.deadline.check(f"{self._plan.replication}: copying")
            message = "working on %d ranges, round %d"
            log_event(log, logging.INFO, Event.COPY_ROUND_STARTED, message, len(left), round_ + 1)
            with self._book.open(left), self._watching(left).working():
                self._end = self._spark.submit(job(self._run, left), self._book.enter)
            answers = self._book.answers
            left = [task for task in left if task.key not in answers or answers[task.key].fenced]
            if left or self._book.failed:  # dead workers may have left transactions open
                self._run.retry("fencing", lambda: fence_stale_producers(self._run), self.patience)
            self._read_ledger()
            if self._end.error and not self._end.retriable:
                break
            left = [self._still_left(task) for task in left]
        error, remedy = self._end.error or "Spark returned no result", self._end.remedy or "run again"
        unanswered = [task for task in left if task.key not in self._book.answers]
        self._book.enter([without_result(task, error, remedy, self._end.retriable) for task in unanswered])

    def _watching(self, tasks: Sequence[RangeTask]) -> Watch:
        if self._watch is None:
            work = work_of(self._plan) or {
                task.key: Work(task.read_back.generation, self.view[task.key].pending()) for task in tasks
            }
            self._watch = Watch(self._run, work, self.view)
        return self._watch

    def _still_left(self, task: RangeTask) -> RangeTask:
        """The same task with what the ledger says now."""
        read_back = self._reading(task.key, task.read_back.generation)
        position, copy = self.view.position(task.key, read_back.generation), task.copy
        return RangeTask(copy=copy if copy and position and position.left_of(copy.range) else None, read_back=read_back)

    def _copying(self, planned: PartitionPlan) -> RangeTask:
        assert planned.copy is not None
        copy = CopyTask(
            key=planned.key,
            range=planned.copy,
            ids=planned.ids,
            generation=planned.generation,
            run_id=self._run.run_id,
            position=planned.position,
            missing=planned.missed,
            planned_engine=planned.engine,
            most_failed=self._most_failed(planned.key, planned.copy.span),
        )
        return RangeTask(copy=copy, read_back=self._reading(planned.key, planned.generation))

    def _most_failed(self, key: PartitionKey, planned: int) -> int:
        """The number of records of the partition that may be set aside in all. The copier compares it with the
        position, which it reads after fencing: so the limit is exact, however often tasks and attempts are repeated.
        """
        failures = self._run.replication.failures
        return 0 if failures.policies == {"fail"} else self._failed_before[key] + failures.most(planned)

    @cached_property
    def _failed_before(self) -> Mapping[PartitionKey, int]:
        """The number of records of each partition that earlier runs have set aside."""
        keys = [planned.key for planned in self._plan.to_copy]
        wanted = {key: self._plan.receipts_from.get(key.ledger_partition) for key in keys}
        read = self._run.retry("reading receipts", lambda: self._run.clusters.ledger.receipts(wanted))
        before = dict[PartitionKey, int]()
        for key in keys:
            mine = (receipt for receipt in read.all(key) if receipt.run_id == self._run.run_id)
            position = self.view.positions.get(key)
            before[key] = (position.set_aside if position else 0) - sum(one.quarantined + one.skipped for one in mine)
        return before

    def _reading(self, key: PartitionKey, generation: int) -> ReadBackTask:
        settings, account = self._run.replication, self.view.of(key, generation)
        return ReadBackTask(
            key=key,
            generation=generation,
            verified=account.verified_or_waived(),
            receipts_from=account.receipts_from(self._plan.receipts_from.get(key.ledger_partition)),
            level=settings.verify.level,
            accept_loss=settings.accept_loss,
            judged_until=account.verified.judged_until,
            retried=account.retried_at(),
            given_up=account.given_up(),
            kept_seconds=settings.retention.receipts,
        )


def job(run: Run, tasks: Sequence[RangeTask] = (), audits: Sequence[Audit] = ()) -> Job:
    """A job with these tasks or audits. Its time limit is what is left of the run's."""
    return Job(
        replication=run.replication,
        source=run.clusters.source,
        target=run.clusters.target_connection,
        tasks=list(tasks),
        audits=list(audits),
        seconds=run.deadline.seconds,
    )


def _slice_text(
    plan: Plan, positions: Mapping[PartitionKey, Position], number: int, part: Sequence[PartitionPlan]
) -> str:
    total = sum(planned.copy.span for planned in plan.to_copy if planned.copy)
    left = sum(range_.span for planned in plan.to_copy for range_ in _left(planned, positions))
    share = f"{total - left} of {total} offsets are on the target ({100 * (total - left) // max(1, total)}%)"
    named = ", ".join(f"{planned.key.source} {planned.copy}" for planned in part[:20])
    return f"slice {number}: {named}{' and others' if len(part) > 20 else ''}; so far {share}"


def _left(planned: PartitionPlan, positions: Mapping[PartitionKey, Position]) -> Iterable[OffsetRange]:
    assert planned.copy is not None
    return positions[planned.key].left_of(planned.copy) if planned.key in positions else (planned.copy,)
