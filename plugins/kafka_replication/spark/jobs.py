"""The job that a run gives to Spark, and its result. Both travel in files that only the owner may read, because a job
holds client settings.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from kafka_replication.config import Copy
from kafka_replication.copying.engine import CopyResult, CopyTask
from kafka_replication.model.offsets import Coverage
from kafka_replication.verification.verify import VerifyResult, VerifyTask


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One Spark application's work: either ``copies`` or ``verifications``, longest first."""

    kind: Literal["copy", "verify"]
    replication: str
    run_id: str
    source: dict[str, Any]
    target: dict[str, Any]
    settings: Copy
    copies: list[CopyTask] = field(default_factory=list)
    verifications: list[VerifyTask] = field(default_factory=list)
    parallelism: int | None = None
    seconds: float | None = None  # what is left of the run's time; None is no bound
    request_seconds: float = 30.0  # that a cluster may take for its first answer to a worker

    @property
    def tasks(self) -> Sequence[CopyTask | VerifyTask]:
        return self.copies if self.kind == "copy" else self.verifications

    @property
    def common(self) -> Job:
        """The part that all tasks share. Every Spark task gets it together with the rows of its own ranges."""
        return replace(self, copies=[], verifications=[])

    def rows(self) -> list[bytes]:
        """Each task as JSON, for the Spark task that works on it; a worker reads it back with `TASK`."""
        return [TASK[self.kind].dump_json(task) for task in self.tasks]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """The results of a job. A range has no result if the whole job ended before it; ``error`` then says why."""

    copies: list[CopyResult] = field(default_factory=list)
    verifications: list[VerifyResult] = field(default_factory=list)
    error: str | None = None
    remedy: str = ""
    retriable: bool = True  # may the same job succeed when it is submitted again?


JOB = TypeAdapter(Job)
RESULT = TypeAdapter(JobResult)
COPY_RESULT = TypeAdapter(CopyResult)
VERIFY_RESULT = TypeAdapter(VerifyResult)
TASK: dict[str, TypeAdapter[Any]] = {"copy": TypeAdapter(CopyTask), "verify": TypeAdapter(VerifyTask)}


def encode(result: CopyResult | VerifyResult) -> str:
    """One range's result as JSON, for the way from a worker to the driver."""
    if isinstance(result, CopyResult):
        return COPY_RESULT.dump_json(result).decode()
    return VERIFY_RESULT.dump_json(result).decode()


def gather(kind: str, encoded: Sequence[str]) -> JobResult:
    """The results of a job's ranges, from the texts that `encode` made."""
    if kind == "copy":
        return JobResult(copies=[COPY_RESULT.validate_json(text) for text in encoded])
    return JobResult(verifications=[VERIFY_RESULT.validate_json(text) for text in encoded])


def died(task: CopyTask | VerifyTask, cause: str) -> CopyResult | VerifyResult:
    """The result of a range whose worker died in every attempt and so returned no result."""
    doing = "copied" if isinstance(task, CopyTask) else "verified"
    error = f"{task.key.source}: the Spark worker that {doing} this range ended in every attempt: {cause}"
    remedy = (
        "see the executor's log; a worker that was killed for memory needs more (spark.executor.memoryOverhead, or the"
        " limit of its container); then run again"
    )
    if isinstance(task, CopyTask):
        return CopyResult(key=task.key, range=task.range, error=error, remedy=remedy, retriable=True)
    return VerifyResult(key=task.key, verified=Coverage(), error=error, remedy=remedy, retriable=True)


def write_private(path: Path, content: bytes) -> None:
    """Write atomically, readable by the owner alone (0600)."""
    temporary = path.with_suffix(".part")
    temporary.unlink(missing_ok=True)  # a leftover would keep its own permissions
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    temporary.replace(path)


def partition_tasks(count: int, parallelism: int | None) -> list[list[int]]:
    """Distribute the numbers of ``count`` ranges, longest first, over at most ``parallelism`` Spark tasks. None gives
    each range its own Spark task.
    """
    tasks = min(count, parallelism or count)
    return [list(range(first, count, tasks)) for first in range(tasks)]
