"""Runs inside a Spark Python worker: copies ranges and reads them back, with clients created here. Audits parts of
partitions, also where an audit was asked for if it is small.

Each worker process imports this module, so it imports nothing that only the driver or the command line needs.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from functools import cached_property, lru_cache, partial

from kafka_replication.copying.engine import CopyEngine, CopyResult, CopyTask
from kafka_replication.copying.pipeline import Pipeline, change_of, load
from kafka_replication.copying.protocol import Copier
from kafka_replication.model.choices import EXACTLY_ONCE
from kafka_replication.model.errors import AttemptsExhausted, ReplicationError
from kafka_replication.model.offsets import Coverage, PartitionKey, TopicPartition
from kafka_replication.runtime import failpoints, stopping
from kafka_replication.runtime.deadline import Deadline, retry
from kafka_replication.runtime.events import Event, log_event
from kafka_replication.spark import jobs
from kafka_replication.spark.jobs import AUDITED, AUDITS, BUNDLE, JOB, RESULTS, Job, RangeResult, RangeTask, left_behind
from kafka_replication.spark.small_ranges import BundleWorker, end_sessions, frugal
from kafka_replication.targets.port import Target
from kafka_replication.verification.auditing import Audit, Audited
from kafka_replication.verification.read_back import ReadBack, ReadBackTask
from kafka_replication.verification.verify import Sides, VerifyResult

log = logging.getLogger(__name__)


def execute(common: bytes, bundle: bytes) -> str:
    """Work on the tasks of one bundle. ``common`` is a `Job` without tasks, ``bundle`` a list of `RangeTask`, both JSON
    like the list of results.
    """
    _begin()
    tasks, here = BUNDLE.validate_json(bundle), _job_of(common)
    results = [replicate(here.job, tasks[0])] if len(tasks) == 1 else here.together(tasks)
    return RESULTS.dump_json(results).decode()


def audit(common: bytes, bundle: bytes) -> str:
    """Work on the audits of one bundle; all is JSON, as that of `execute`."""
    _begin()
    auditor = _auditor_of(common)
    return AUDITED.dump_json([auditor.work(task) for task in AUDITS.validate_json(bundle)]).decode()


def _begin() -> None:
    """A worker that gets a signal to end aborts its transactions first."""
    stopping.on_signals(even_ignored=True)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)


class WorkerJob:
    """One job in this worker."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def together(self, tasks: Sequence[RangeTask]) -> list[RangeResult]:
        """The results of these small ranges after a bounded time. A range that did not end is fenced by the worker that
        gets it next. Without transactions nothing fences it, so it is not dealt again.
        """
        results = self._together.work(tasks)
        if self.job.replication.delivery == EXACTLY_ONCE:
            return results
        return [*results, *(left_behind(task) for task in tasks if task.key in self._together.at_work)]

    @cached_property
    def _together(self) -> BundleWorker[Tools]:
        job = frugal(self.job)
        return BundleWorker(
            job.together, lambda stop: Tools(job, stop), work_on, lambda tasks: end_sessions(job, tasks)
        )


@lru_cache(maxsize=1)
def _job_of(common: bytes) -> WorkerJob:
    job = JOB.validate_json(common)
    return WorkerJob(job.shared(job.at_a_time))


class Tools:
    """The tools that the tasks of one job share in one thread of a worker: the deadline, and a ledger that is read
    incrementally.

    The deadline's clock is that of the range at work: a thread works on one range at a time.
    """

    def __init__(self, job: Job, stop: threading.Event | None = None) -> None:
        self.job = job
        self.deadline = Deadline.after(job.seconds, stop).while_moving(jobs.WITHOUT_PROGRESS)

    @cached_property
    def target(self) -> Target:
        return self.job.open_target(self.deadline)

    @cached_property
    def pipeline(self) -> Pipeline | None:
        """The pipeline of the job. Raises BadInput for a function that this worker cannot import."""
        return load(self.job.replication.pipeline)


_thread = threading.local()


def tools_of(job: Job) -> Tools:
    """The tools of this job in this thread. They are created for its first task."""
    if getattr(_thread, "job", None) is not job:
        _thread.job, _thread.tools = job, Tools(job)
    tools: Tools = _thread.tools
    return tools


def replicate(job: Job, task: RangeTask) -> RangeResult:
    """Copy the task's range, and read back the copies that are not verified, also after an error.

    Never raises a ReplicationError.
    """
    return work_on(tools_of(job), task)


def work_on(tools: Tools, task: RangeTask) -> RangeResult:
    """Copy and read back as `replicate` does, with these tools."""
    failpoints.reached("W", str(task.key.source))
    job = tools.job
    copied = copy(tools, task.copy) if task.copy else None
    if copied is not None and copied.fenced:
        return RangeResult(key=task.key, copied=copied)
    attempts = 1 if copied is not None and copied.error else job.attempts
    just_copied = replace(task.read_back, copied_from=copied.receipts_from) if copied is not None else task.read_back
    return RangeResult(key=task.key, copied=copied, read_back=read_back(tools, just_copied, attempts))


def _target(job: Job, key: PartitionKey) -> TopicPartition:
    """A partition of the target topic."""
    return key.target if job.replication.placing.keeps else TopicPartition(key.target_topic, 0)


def copy(tools: Tools, task: CopyTask) -> CopyResult:
    from kafka_replication.kafka import reachability
    from kafka_replication.kafka.record_engine import ENGINES, FALLBACK, engine_for, exact_for

    key, job, deadline = task.key, tools.job, tools.deadline
    replication, settings = job.replication, job.replication.copying
    deadline.moved()  # the time of this range begins
    log_event(log, logging.INFO, Event.COPY_STARTED, "copying %s %s to %s", key.source, task.range, key.target_topic)
    started = time.monotonic()

    def progress(task: CopyTask, result: CopyResult) -> None:
        seconds = time.monotonic() - started
        done = 100 * result.copied / max(1, task.range.span)
        log_event(
            log,
            logging.INFO,
            Event.CHUNK_COMMITTED,
            "%s: %d records, %.1f MB/s, %.0f%% of span",
            task.key.source,
            result.copied,
            result.bytes / 1e6 / seconds,
            done,
        )

    def exact() -> CopyEngine | None:
        return exact_for(task, settings, job.source, tools.target.sink, tools.pipeline, deadline)

    try:
        reachability.check("source", job.source, task.key.source, replication.timeouts.request, deadline)
        tools.target.check_reachable(_target(job, task.key))
        chosen = engine_for(task, settings, job.source, tools.target.sink, tools.pipeline, deadline)
        copier = Copier(
            engine=chosen.engine,
            why=chosen.why,
            fallback=ENGINES[FALLBACK](job.source, settings, tools.pipeline, deadline),
            exact=None if settings.engine == FALLBACK else exact,
            sink=tools.target.sink,
            settings=settings,
            progress=progress,
            deadline=deadline,
            attempts=job.attempts,
            failures=replication.failures,
            quarantine_topic=replication.quarantine_topic,
        )
    except ReplicationError as e:
        return CopyResult(key=task.key, range=task.range, error=e.what, remedy=e.remedy, retriable=e.retriable)
    return copier.copy(task)


def read_back(tools: Tools, task: ReadBackTask, attempts: int) -> VerifyResult:
    """Read the partition back. After a retriable error, continue with the chunks that are not verified yet."""
    job, deadline = tools.job, tools.deadline
    copying = job.replication.copying
    deadline.moved()  # reading back has a time of its own

    def sides() -> AbstractContextManager[Sides]:
        from kafka_replication.kafka.read_back import PartitionSides

        return closing(PartitionSides(job.source, tools.target.standing, task.key, copying.stall_timeout))

    started, result = time.monotonic(), VerifyResult(key=task.key, verified=Coverage())
    try:
        deadline.check(f"verifying {task.key.source}")
        tools.target.check_reachable(_target(job, task.key))
        reading = ReadBack(
            task,
            tools.target.ledger,
            lambda: tools.target.sink.verifier(task.key),
            sides,
            lambda receipt: change_of(tools.pipeline, task.key, receipt),
        )
        try:
            doing = f"verifying {task.key.source}"
            named = AttemptsExhausted.of if attempts == job.attempts else None
            retry(doing, reading.attempt, deadline, attempts, exhausted=named, progress=lambda: reading.result.verified)
        finally:
            result = reading.result
    except ReplicationError as e:
        result = replace(result, error=e.what, remedy=e.remedy, retriable=e.retriable)
    log.info("verified %s %s: %d records", task.key.source, result.verified, result.records)
    return replace(result, seconds=round(time.monotonic() - started, 3))


@lru_cache(maxsize=1)
def _auditor_of(common: bytes) -> Auditor:
    return Auditor(JOB.validate_json(common))


class Auditor:
    """The audits of one job in this process, one after the other."""

    def __init__(self, job: Job) -> None:
        self._job, self._tools = job, Tools(job)
        self._failed: dict[PartitionKey | TopicPartition, str] = {}

    def work(self, task: Audit) -> Audited:
        """The result. An error, also one of a transform's code that is missing here, is a part of it.

        What could not be read once is not waited for again: the further parts of a partition have the same error.
        """
        failpoints.reached("W", task.where)
        self._tools.deadline.moved()
        if error := self._failed.get(task.partition):
            return task.failed(error)
        result = self._audit(task)
        if result.findings.errors:
            self._failed[task.partition] = result.findings.errors[0]
        return result

    def _audit(self, task: Audit) -> Audited:
        from kafka_replication.kafka import reachability
        from kafka_replication.kafka.audit import PartAudit, read_claims

        tools, job, key = self._tools, self._job, task.partition
        if isinstance(key, TopicPartition):
            return read_claims(task, key, tools.target.standing.reader, partial(self._moved, task, is_piece=True))
        if task.other_copy is not None:
            from kafka_replication.kafka.other_copies import both_sides, compare

            moved = partial(self._moved, task, is_piece=True)
            return compare(task, key, *both_sides(job.replication, job.source, job.target, moved))
        try:
            tools.deadline.check(f"auditing {task.where}")
            by_content = [*(unit.by_content for unit in task.units), *(chunk.by_content for chunk in task.spread)]
            if any(by_content) or (task.deliveries is not None and task.deliveries.by_content):
                reachability.check("source", job.source, key.source, job.replication.timeouts.request, tools.deadline)
            part = PartAudit(
                task=task,
                key=key,
                source=job.source,
                target=tools.target,
                pipeline=tools.pipeline,
                stall_seconds=job.replication.copying.stall_timeout,
                moved=partial(self._moved, task),
            )
        except ReplicationError as error:
            return task.failed(str(error))
        return part.audited()

    def _moved(self, task: Audit, *, is_piece: bool = False) -> None:
        if is_piece:
            self._tools.deadline.moved()  # a piece may be long, and a reader that stands still ends by itself
        failpoints.reached("AC", task.where)
        self._tools.deadline.check(f"auditing {task.where}")
        self._tools.deadline.moved()
