"""The seam between a run's steps and Spark: jobs go in, results come out."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from kafka_replication.connections import SparkConnection
from kafka_replication.model.errors import BadInput, Unreachable
from kafka_replication.runtime import deadline
from kafka_replication.spark import local
from kafka_replication.spark.jobs import MASTER_SILENT, NOT_STARTED, Job, JobEnd
from kafka_replication.spark.submit import READ_SECONDS, OutputFile, TerminalSubmission, environment
from kafka_replication.spark.workspace import Workspace, workspace

if TYPE_CHECKING:
    from kafka_replication.spark.channel import LauncherSide
    from kafka_replication.spark.reach import SparkLog

Deliver = Callable[[Sequence[Any]], None]  # gets `RangeResult` of tasks, and `Audited` of audits
END_SECONDS = 15.0  # for the end of spark-submit
GRACE = 15.0  # after the time of a run


class Submission(Protocol):
    """One way to call spark-submit."""

    @property
    def master(self) -> str:
        """The address of Spark. Raises BadInput, ConnectionMissing."""

    def start(self, here: Workspace, name: str, hear: Callable[[str], object]) -> None:
        """Call spark-submit; the Spark application gets ``name``, and ``hear`` each line of Spark's log. Do not wait.
        Raises BadInput, ConnectionMissing.
        """

    def wait(self, seconds: float) -> str | None:
        """The end of spark-submit, for an error message; None if it still runs after ``seconds``. Raises BadInput."""

    def stop(self) -> None:
        """End spark-submit, if it runs, and all its processes on this machine. Another thread may call this."""

    def log_place(self) -> str:
        """The place of Spark's log, for an error message."""


class Launcher:
    """One Spark application, that takes any number of jobs inside a ``with`` block:
    ``with launcher as spark: spark.submit(job, deliver)``. If Spark ends before its time, the next job starts it again.

    The submission is made for the first job: a run without work needs no Spark and no Spark connection.
    `tests/contract/launcher` checks the rules that every launcher must keep.
    """

    def __init__(self, make: Callable[[], Submission]) -> None:
        self._make, self._stack = make, ExitStack()
        self._made: Submission | None = None
        self._driver: LauncherSide | None = None
        self._log: SparkLog | None = None  # of the application that runs, or ran last

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every process that a job left on this machine, and let Spark end its executors."""
        try:
            if self._driver is not None and kind is None:
                self._driver.close()
                self._submission.wait(END_SECONDS)
        finally:
            if self._made is not None:
                self._end()

    def submit(self, job: Job, deliver: Deliver) -> JobEnd:
        """Run the job and wait for it.

        ``deliver`` is called in this thread with the results that came since the last call, while other tasks still
        work. Every task has one result. A task that failed has a result with its error. A task whose worker died in
        every attempt has a result with a retriable error. Neither stops another task. A part of an audit that could not
        be read has a result with its error, too. The `JobEnd` has an error only if the job as a whole ended early.
        Raises ReplicationError if the job could not run at all (BadInput, ConnectionMissing, Unreachable), OutOfTime if
        it was stopped because the run's time was used up, and whatever ``deliver`` raises; the job may then still run
        until the block ends.
        """
        from kafka_replication.spark.channel import Gone

        # Workers end before that, unless they hang or started late.
        seconds = math.inf if job.seconds is None else job.seconds + GRACE
        with timer(seconds, self._submission.stop) as is_over:
            try:
                driver, end = self._started(job), JobEnd()
                driver.send(job)
                for answers in driver.answers():
                    if results := [answer.result for answer in answers if answer.result is not None]:
                        deliver(results)
                    end = answers[-1].end or end
                return self._explained(end) if end.error else end
            except Gone:
                ended = self._submission.wait(END_SECONDS)
                self._end()
                if is_over.is_set():
                    raise deadline.out_of_time(f"the Spark job of {job.replication.name} was stopped") from None
                return self._explained(
                    JobEnd(error=f"Spark ended with {ended} before its work was done", remedy=self._see_log())
                )

    @property
    def _submission(self) -> Submission:
        """Raises what making it raises, for example ConnectionMissing."""
        if self._made is None:
            self._made = self._make()
        return self._made

    def _explained(self, end: JobEnd) -> JobEnd:
        """The end with the true cause, if Spark's log has it. The application ends with its job. Raises Unreachable,
        BadInput if no master took it.
        """
        self._end()
        self._submission.wait(READ_SECONDS)  # its log is read to the end
        if self._log is None or (failure := self._log.failure) is None:
            return end
        if failure.is_start:
            raise (Unreachable if failure.is_passing else BadInput)(failure.what, failure.remedy)
        return JobEnd.of(failure)

    def _started(self, job: Job) -> LauncherSide:
        from kafka_replication.spark import reach
        from kafka_replication.spark.channel import Listener
        from kafka_replication.spark.preloaded import waiting
        from kafka_replication.spark.reach import SparkLog

        if self._driver is None:
            said = self._log = SparkLog(master := self._submission.master)
            if silent := reach.silent_master(master):
                raise Unreachable(f"{MASTER_SILENT.what}: {silent}", MASTER_SILENT.remedy)
            here = self._stack.enter_context(workspace())
            listening = self._stack.enter_context(closing(Listener(here.socket)))
            ended: list[str] = []

            def hear(line: str) -> None:
                """If no master takes the application, end it: Spark would go on trying for 40 s."""
                if said.hear(line):
                    threading.Thread(target=self._submission.stop, daemon=True, name="stop-spark").start()

            def is_over() -> bool:
                ended.extend(filter(None, [self._submission.wait(0)]))
                return bool(ended)

            self._submission.start(here, f"kafka-replication {job.replication.name}", hear)
            if local.is_local(master):
                self._stack.enter_context(waiting(here.folder, environment(master, here)))
            self._driver = listening.accept(is_over)
            if self._driver is None:
                self._explained(JobEnd())
                why = f": {said.not_submitted}" if said.not_submitted else ""
                raise Unreachable(f"{NOT_STARTED.what}: spark-submit ended with {ended[0]}{why}", self._see_log())
        return self._driver

    def _see_log(self) -> str:
        return f"see Spark's log {self._submission.log_place()}; run again"

    def _end(self) -> None:
        """Stop everything. The next job starts Spark again."""
        self._driver = None
        try:
            self._submission.stop()
        finally:
            self._stack.close()


def terminal_launcher(
    find: Callable[[], SparkConnection], conf: Mapping[str, str], output: OutputFile | None = None
) -> Launcher:
    """The command line's launcher. ``find`` is called for its first job; it may raise BadInput, ConnectionMissing."""

    return Launcher(lambda: TerminalSubmission(find(), conf, output))


@contextmanager
def timer(seconds: float, act: Callable[[], None]) -> Iterator[threading.Event]:
    """Call ``act`` in a thread if the body takes longer than ``seconds``. The event is set before the call."""
    is_over = threading.Event()

    def over() -> None:
        is_over.set()
        act()

    timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), over)
    timer.daemon = True
    timer.start()
    try:
        yield is_over
    finally:
        timer.cancel()
