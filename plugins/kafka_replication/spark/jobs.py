"""What a run hands to Spark and gets back: files that only their owner may read, for they hold client settings."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import TypeAdapter

from kafka_replication.config import Copy
from kafka_replication.copying.engine import CopyResult, CopyTask
from kafka_replication.verification.verify import VerifyResult, VerifyTask


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class JobResult:
    """What came back; a range that is missing here died with its Spark task (``error`` says how)."""

    copies: list[CopyResult] = field(default_factory=list)
    verifications: list[VerifyResult] = field(default_factory=list)
    error: str | None = None
    remedy: str = ""
    retriable: bool = True  # may the same job succeed when it is submitted again?


class Launcher(Protocol):
    """Runs a job on Spark and waits for it. Raises ReplicationError where it could not run at all."""

    def __call__(self, job: Job) -> JobResult: ...


JOB = TypeAdapter(Job)
RESULT = TypeAdapter(JobResult)
COPY_RESULT = TypeAdapter(CopyResult)
VERIFY_RESULT = TypeAdapter(VerifyResult)


def write_private(path: Path, content: bytes) -> None:
    """Write atomically, readable by the owner alone (0600)."""
    temporary = path.with_suffix(".part")
    temporary.unlink(missing_ok=True)  # a leftover would keep its own permissions
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    temporary.replace(path)


def deal(tasks: Sequence[int], hands: int | None) -> list[list[int]]:
    """Deal task numbers, longest first, to at most ``hands`` Spark tasks; None gives each its own."""
    count = min(len(tasks), hands or len(tasks))
    return [list(tasks[start::count]) for start in range(count)]
