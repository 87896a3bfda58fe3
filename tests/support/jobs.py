"""Jobs of a run without Spark: the workers' real functions, in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Self

from kafka_replication.copying.engine import CopyResult, CopyTask
from kafka_replication.model import offsets
from kafka_replication.model import offsets as product
from kafka_replication.spark import worker
from kafka_replication.spark.jobs import (
    AUDITED,
    JOB,
    RESULTS,
    WORKER_ENDED,
    Job,
    JobEnd,
    RangeResult,
    RangeTask,
)
from kafka_replication.spark.launcher import Deliver, Launcher, Submission
from kafka_replication.spark.worker import Auditor
from kafka_replication.verification.auditing import Audit, Audited
from kafka_replication.verification.read_back import ReadBackTask
from tests.support import planning
from tests.support.waiting import SAFETY


def job_with(
    tasks: Sequence[RangeTask] = (),
    source: Mapping[str, Any] | None = None,
    target: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Job:
    """A job with these tasks, of a file with these settings."""
    file = planning.replication(**settings)
    return Job(replication=file, source=dict(source or {}), target=dict(target or {}), tasks=list(tasks))


class WorkerDied(BaseException):
    """What ends a worker's process in Spark, where there is no process of its own."""


@dataclass
class InProcess(Launcher):
    """A launcher without Spark: the workers' real functions, one after the other, or ``at_once`` of them at a time.

    ``between`` is called once in a job that copies, after its copies and before they are read back; ``then`` after each
    job.
    """

    then: Callable[[Job], None] = lambda job: None
    between: Callable[[], None] | None = None
    jobs: list[Job] = field(default_factory=list)
    at_once: int = 1
    audits: list[Job] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def submit(self, job: Job, deliver: Deliver) -> JobEnd:
        if job.audits:
            return self._audit(job, deliver)
        self.jobs.append(job)
        copied: dict[offsets.PartitionKey, CopyResult] = {}
        if self.between is not None and (first := copies(job)):
            copied = {task.key: worker.copy(worker.tools_of(job), task) for task in first}
            self.between()
        tasks = [replace(task, copy=None) if task.key in copied else task for task in job.tasks]
        for result in self._results(job, tasks):
            # As JSON and back, as on the way from Spark.
            deliver(
                RESULTS.validate_json(
                    RESULTS.dump_json([replace(result, copied=copied.get(result.key, result.copied))])
                )
            )
        self.then(job)
        return JobEnd()

    def _audit(self, job: Job, deliver: Deliver) -> JobEnd:
        sent = JOB.validate_json(JOB.dump_json(job))  # as on the way to Spark
        assert sent.audits == job.audits
        self.audits.append(sent)
        auditor = Auditor(sent)
        for task in sent.audits:
            try:
                result = auditor.work(task)
            except WorkerDied as death:
                result = self.died(task, death)
            deliver(AUDITED.validate_json(AUDITED.dump_json([result])))
        return JobEnd()

    def died(self, task: Audit, death: WorkerDied) -> Audited:
        return task.died(f"{WORKER_ENDED.what}: {death!r}", WORKER_ENDED.remedy)

    def _results(self, job: Job, tasks: Sequence[RangeTask]) -> Iterator[RangeResult]:
        if self.at_once == 1:
            yield from (self._work(job, task) for task in tasks)
            return
        with ThreadPoolExecutor(self.at_once) as threads:
            yield from threads.map(lambda task: self._work(job, task), tasks)

    def _work(self, job: Job, task: RangeTask) -> RangeResult:
        try:
            return worker.replicate(job, task)
        except WorkerDied as death:
            return task.died(f"{WORKER_ENDED.what}: {death!r}", WORKER_ENDED.remedy)

    def __exit__(self, *_: object) -> None: ...


def copies(job: Job) -> list[CopyTask]:
    """What a job is to copy."""
    return [task.copy for task in job.tasks if task.copy is not None]


def submit(job: Job, launcher: Launcher | None = None) -> list[RangeResult]:
    """The results of a job that ended well."""
    results: list[RangeResult] = []
    end = (launcher or InProcess()).submit(job, results.extend)
    assert end.error is None, end
    return results


def copy_once(job: Job, launcher: Launcher | None = None) -> CopyResult:
    """The one copy of a job."""
    (result,) = submit(job, launcher)
    assert result.copied is not None
    return result.copied


def after_copy(act: Callable[[], None]) -> InProcess:
    """Something happens between copying and reading back."""
    return InProcess(between=act)


class Gate(InProcess):
    """Holds a run inside its first job until it is opened."""

    def __init__(self) -> None:
        super().__init__(self.hold)
        self.inside, self.opened = threading.Event(), threading.Event()

    def hold(self, job: Job) -> None:
        self.inside.set()
        assert self.opened.wait(SAFETY)


def _refused() -> Submission:
    raise AssertionError("an idle run asked for Spark")


no_launch = Launcher(_refused)


def reading(key: offsets.PartitionKey, generation: int = 1) -> ReadBackTask:
    """Everything of one partition, however often it was read back."""
    return ReadBackTask(
        key=key,
        generation=generation,
        verified=product.Coverage(),
        receipts_from=None,
        level="digest",
        kept_seconds=7 * 86_400,
    )
