"""The seam between a run's steps and Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Protocol, Self

from kafka_replication.spark.jobs import Job, JobEnd

Deliver = Callable[[Sequence[Any]], None]  # gets `RangeResult` of tasks, and `Audited` of audits


class Launcher(Protocol):
    """One Spark application, that takes any number of jobs inside a ``with`` block:
    ``with launcher as spark: spark.submit(job, deliver)``.

    `tests/contract/launcher` checks the rules that every launcher must keep.
    """

    def __enter__(self) -> Self: ...

    def submit(self, job: Job, deliver: Deliver) -> JobEnd:
        """Run the job and wait for it.

        ``deliver`` is called in this thread with the results that came since the last call, while other tasks still
        work. Every task has one result. A task that failed has a result with its error. A task whose worker died in
        every attempt has a result with a retriable error. Neither stops another task. A part of an
        audit that could not be read has a result with its error, too. The `JobEnd` has an error only if
        the job as a whole ended early. Raises ReplicationError if the job could not run at all, OutOfTime if it was
        stopped because the run's time was used up, and whatever ``deliver`` raises; the job may then still run until
        the block ends.
        """

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every process that a job left on this machine, and let Spark end its executors."""


class OnDemand:
    """Makes the launcher for the first job: a run without work needs no Spark and no Spark connection."""

    def __init__(self, make: Callable[[], Launcher]) -> None:
        self._make, self._stack = make, ExitStack()
        self._launcher: Launcher | None = None

    def __enter__(self) -> Self:
        return self

    def submit(self, job: Job, deliver: Deliver) -> JobEnd:
        """Raises also the errors of making the launcher, for example ConnectionMissing."""
        return self._made().submit(job, deliver)

    def _made(self) -> Launcher:
        if self._launcher is None:
            self._launcher = self._stack.enter_context(self._make())
        return self._launcher

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._launcher = None
        self._stack.__exit__(kind, error, trace)
