"""The jobs that a run gives to Spark, and their results, as values and as JSON.

Last, the failures of Spark itself, each with its remedy. A failure in a range is an error of that range.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Self

from pydantic import PlainSerializer

from kafka_replication.config import Copy, Replication
from kafka_replication.copying.engine import CopyResult, CopyTask
from kafka_replication.model.choices import implementation
from kafka_replication.model.offsets import Coverage, PartitionKey
from kafka_replication.runtime import deadline as deadlines
from kafka_replication.runtime.deadline import Deadline
from kafka_replication.runtime.private_json import deferred
from kafka_replication.targets.port import Target, TargetSettings, kind
from kafka_replication.verification.auditing import Audit, Audited
from kafka_replication.verification.read_back import ReadBackTask
from kafka_replication.verification.verify import VerifyResult

# The modules that a worker imports.
NEEDED = (
    "confluent_kafka",
    "xxhash",
    "pydantic",
    "tenacity",
    "jmespath",
    "kafka_replication.kafka.record_engine",
)
NEEDED_FOR_BATCHES = ("kio", "crc32c", "scramp", "lz4", "cramjam", "zstandard", "kafka_replication.kafka.batch_engine")
# Seconds after which a range that does not move is given up: brokers restart and leaders move in less, a chunk takes a
# tenth of it, and the next run, which tries again, need not wait for long.
WITHOUT_PROGRESS = 600.0


def needed(settings: Copy) -> tuple[str, ...]:
    """The modules that a worker imports with these settings."""
    return (*NEEDED, *NEEDED_FOR_BATCHES) if settings.engine == "batch" else NEEDED


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeTask:
    """The work on one partition: copy a range, if there is one, then read back the copies that are not verified."""

    copy: CopyTask | None = None
    read_back: ReadBackTask

    @property
    def key(self) -> PartitionKey:
        return self.read_back.key

    @property
    def id(self) -> PartitionKey:
        return self.key

    @property
    def where(self) -> str:
        return str(self.key.source)

    def died(self, cause: str, remedy: str) -> RangeResult:
        """The result if its worker died in every attempt and so returned no result."""
        return without_result(self, f"{self.where}: {cause}", remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeResult:
    """The outcome of one task. ``read_back`` is None if the copy was fenced: another copier works on the partition.
    ``at_work``: its thread has not ended, so that no one else may begin with the partition.
    """

    key: PartitionKey
    copied: CopyResult | None = None
    read_back: VerifyResult | None = None
    at_work: bool = False

    @property
    def id(self) -> PartitionKey:
        return self.key

    @property
    def is_final(self) -> bool:
        """True if the task is not dealt again by itself, after it was dealt with others."""
        failed = (self.copied and self.copied.error) or (self.read_back and self.read_back.error)
        return self.fenced or self.at_work or not failed

    @property
    def fenced(self) -> bool:
        return self.copied is not None and self.copied.fenced

    def joined_to(self, before: RangeResult) -> RangeResult:
        """The results of two attempts at one task. This is the later one, which read everything back."""
        if self.copied is None or before.copied is None:
            return self
        return replace(self, copied=self.copied.joined_to(before.copied))


# Only Airflow and alerts read them. A text may be long, and a worker has no croniter to check a schedule with.
UNSENT = {"schedule", "progress", "alerts", "description"}


def _sent(replication: Replication) -> dict[str, Any]:
    return replication.model_dump(mode="json", exclude=UNSENT, exclude_unset=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Tasks for Spark, each of another partition, or audits. They are begun in this order."""

    replication: Annotated[Replication, PlainSerializer(_sent)]
    source: dict[str, Any] = field(repr=False)  # the settings of the connections
    target: dict[str, Any] = field(repr=False)
    tasks: list[RangeTask] = field(default_factory=list)
    audits: list[Audit] = field(default_factory=list)
    seconds: float | None = None  # the seconds left of the run's time; None is no bound
    at_a_time: int = 1  # how many ranges Spark works on at a time, each with its share of the throughput limit
    together: int = 1  # how many small ranges a worker may work on at a time
    attempts: int = field(default_factory=lambda: deadlines.ATTEMPTS)  # in a row that get no further

    @property
    def needed(self) -> tuple[str, ...]:
        """The modules that its workers import."""
        replication = self.replication
        of_target, _, _ = implementation(replication.target.type).partition(":")
        return (*needed(replication.copying), of_target, *replication.pipeline.modules)

    def open_target(self, deadline: Deadline) -> Target:
        """The target, for a worker. Does not connect. Raises BadInput for a kind that cannot be imported."""
        settings = TargetSettings(replication=self.replication, connection=self.target, shared=True)
        return kind(self.replication.target.type)(settings, deadline)

    def shared(self, at_a_time: int) -> Job:
        """The same job for one of so many ranges ``at_a_time``: each gets its share of the throughput limit. A share
        may be less than a file may have, so that only workers make it, who do not validate it.
        """
        limit = self.replication.copying.throughput_limit
        return self if limit is None else self.copying(throughput_limit=max(1, limit // at_a_time))

    def copying(self, **changes: object) -> Job:
        """The same job with other settings of ``copy``."""
        copying = self.replication.copying.model_copy(update=changes)
        return replace(self, replication=self.replication.model_copy(update={"copying": copying}))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """The end of a job. Without ``error`` every task has a result."""

    error: str | None = None
    remedy: str = ""
    retriable: bool = True  # may the same job succeed when it is submitted again?

    @classmethod
    def of(cls, failure: Failure, more: str = "") -> Self:
        return cls(
            error=f"{failure.what}: {more}" if more else failure.what,
            remedy=failure.remedy,
            retriable=failure.is_passing,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One message of the driver: the result of a task, or the end of the job."""

    result: RangeResult | Audited | None = None
    end: JobEnd | None = None


JOB = deferred(Job, private=True)
ANSWER = deferred(Answer)
BUNDLE = deferred(list[RangeTask])
RESULTS = deferred(list[RangeResult])
AUDITS = deferred(list[Audit])
AUDITED = deferred(list[Audited])


def left_behind(task: RangeTask) -> RangeResult:
    """The result of a task that was given up, and whose thread has not ended."""
    error = f"{task.key.source}: a worker was told to give the range up, and still waits for a cluster or its own code"
    remedy = "run again: what it has sent is counted then; see the log of the executor for what it waits for"
    return replace(without_result(task, error, remedy), at_work=True)


def without_result(task: RangeTask, error: str, remedy: str, retriable: bool = True) -> RangeResult:
    """The result of a task for which there is none."""
    if task.copy is None:
        lost = VerifyResult(key=task.key, verified=Coverage(), error=error, remedy=remedy, retriable=retriable)
        return RangeResult(key=task.key, read_back=lost)
    copied = CopyResult(key=task.key, range=task.copy.range, error=error, remedy=remedy, retriable=retriable)
    return RangeResult(key=task.key, copied=copied)


SMALL = 5_000  # offsets
LARGEST_BUNDLE = 32  # so that its results, which come together, come soon
Bundle = list[RangeTask]


def bundles(tasks: Sequence[RangeTask], slots: int) -> list[Bundle]:
    """The bundles for Spark in order: each large task by itself, then the small ones together.

    The small ones are shared evenly by the ``slots``. A task that only reads back counts as large: its size is unknown.
    """
    small = [task for task in tasks if task.copy is not None and task.copy.range.span <= SMALL]
    size = max(1, min(LARGEST_BUNDLE, math.ceil(len(small) / slots)))
    large = [[task] for task in tasks if task.copy is None or task.copy.range.span > SMALL]
    return [*large, *(small[first : first + size] for first in range(0, len(small), size))]


def longest_first(tasks: Sequence[RangeTask]) -> list[RangeTask]:
    """The tasks with most offsets first, so that no long task starts last."""
    return sorted(tasks, key=lambda task: -(task.copy.range.span if task.copy else 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One kind of failure. ``is_passing``: the same job may succeed later. ``is_start``: no job was begun."""

    name: str  # its anchor in docs/errors.md
    what: str
    remedy: str
    is_passing: bool = True
    is_start: bool = False


EXECUTOR_LACKS_MODULE = Failure(
    name="executor-lacks-module",
    what="a Spark executor cannot run the job",
    remedy="install requirements.txt (for copy.engine: batch also kafka-replication[batch] has what is needed) and the"
    " module of each transform into that Python on every executor, name another Python with PYSPARK_PYTHON"
    " (spark.pyspark.python), or send a transform's module with spark.submit.pyFiles in spark.conf",
    is_passing=False,
)
EXECUTOR_LACKS_PYTHON = Failure(
    name="executor-lacks-python",
    what="a Spark executor cannot start its Python",
    remedy="name with PYSPARK_PYTHON (spark.pyspark.python) a Python that every executor has, of the driver's version",
    is_passing=False,
)
WORKER_ENDED = Failure(
    name="worker-ended",
    what="the Spark worker of this range ended in every attempt",
    remedy="see the executor's log; a worker that was killed for memory needs more (spark.executor.memoryOverhead, or"
    " the limit of its container); then run again",
)
GAVE_UP = Failure(
    name="spark-gave-up", what="Spark gave up", remedy="see Spark's log, which has the cause; then run again"
)
ENDED_EARLY = Failure(
    name="spark-ended",
    what="Spark ended before its work was done",
    remedy="see Spark's log; run again: the next run continues after the last commit",
)
NOT_STARTED = Failure(
    name="spark-not-started",
    what="Spark did not start",
    remedy="see Spark's log: Java 17 or newer, the master of the Spark connection, its memory; then run again",
)
MASTER_SILENT = Failure(
    name="spark-master-silent",
    what="no Spark master answers",
    remedy="start it, or correct host and port of the Spark connection; then run again",
    is_start=True,
)
SECRET_REFUSED = Failure(
    name="spark-secret-refused",
    what="the Spark master does not let the application in",
    remedy="give the Spark connection the same spark.authenticate and spark.authenticate.secret that the master has",
    is_passing=False,
    is_start=True,
)
NOT_REGISTERED = Failure(
    name="spark-not-registered",
    what="something answers at the address of the Spark master, and does not take the application",
    remedy="see the master's log and Spark's: is it a Spark master, and of the same version of Spark? Then run again",
    is_start=True,
)
APPLICATION_REMOVED = Failure(
    name="spark-application-removed",
    what="the Spark master ended the application",
    remedy="if nobody ended it there, its executors could not start: see their logs; then run again",
    is_passing=False,
)
EXECUTORS_LOST = Failure(
    name="spark-executors-lost",
    what="Spark lost every executor of the application, and the master gave it no other one",
    remedy="see whether the Spark master and its workers run: a master that was restarted forgets the application; then"
    " run again: the next run continues after the last commit",
)
FAILURES = tuple(value for value in tuple(vars().values()) if isinstance(value, Failure))
