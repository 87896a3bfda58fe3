"""Where jobs run: the seam between a run's steps and Spark."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Protocol, Self

from kafka_replication.spark.jobs import Job, JobResult


class Launcher(Protocol):
    """Runs jobs from when it is entered until it is left: ``with launcher as spark: spark.submit(job)``.

    What every launcher has to keep is checked by `tests/contract/launcher`.
    """

    def __enter__(self) -> Self: ...

    def submit(self, job: Job) -> JobResult:
        """Run the job and wait for it.

        Every range of it has one result. A range that fails is a result with its error; so is one whose worker died
        every time, and that one is retriable. It holds no other range back. Only what ended the job as a whole is the
        `JobResult`'s own error; the results that came before it are kept. Raises ReplicationError where the job could
        not run at all, and OutOfTime where it was stopped because the run's time was used up.
        """

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every process that a job left on this machine. Spark is told to end its executors."""


class OnDemand:
    """Makes a launcher for the first job: a run without work needs neither Spark nor a connection to it."""

    def __init__(self, make: Callable[[], Launcher]) -> None:
        self._make, self._stack = make, ExitStack()
        self._launcher: Launcher | None = None

    def __enter__(self) -> Self:
        return self

    def submit(self, job: Job) -> JobResult:
        """Raises what making the launcher raises, ConnectionMissing for one."""
        if self._launcher is None:
            self._launcher = self._stack.enter_context(self._make())
        return self._launcher.submit(job)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._launcher = None
        self._stack.__exit__(kind, error, trace)
