"""Start Spark with spark-submit and give it jobs: the launcher, and the command line's way to call spark-submit."""

from __future__ import annotations

import importlib.util
import logging
import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol, Self

from kafka_replication.connections.port import SparkConnection
from kafka_replication.model.errors import BadInput, OutOfTime, Unreachable
from kafka_replication.runtime import deadline, extras
from kafka_replication.runtime.stopping import end_group
from kafka_replication.spark.channel import Gone, LauncherSide, listen
from kafka_replication.spark.failures import MASTER_SILENT, NOT_STARTED
from kafka_replication.spark.host import local, reach
from kafka_replication.spark.host.environment import without_secrets
from kafka_replication.spark.host.workspace import PACKAGE, Workspace, link_code, workspace, write_package
from kafka_replication.spark.jobs import Job, JobEnd
from kafka_replication.spark.launcher import Deliver
from kafka_replication.spark.start import given_path
from kafka_replication.spark.submitting.output import OutputFile
from kafka_replication.spark.submitting.said import SparkLog

log = logging.getLogger(__name__)
SCRIPTS = "KAFKA_REPLICATION_SPARK_JOBS"
SCRIPT = "replicate_ranges.py"
STOP_SECONDS = 15.0
GRACE = 15.0
READ_SECONDS = 2.0  # for the rest of the log of a spark-submit that has ended


def script() -> Path:
    """The entry point: in the folder that the environment names, else in ``spark_jobs/`` beside the package, else in
    the installed package. Raises BadInput if the named folder has no entry point.
    """
    named, beside = os.environ.get(SCRIPTS), PACKAGE.parents[1] / "spark_jobs" / SCRIPT
    if named is None:
        return beside if beside.is_file() else PACKAGE / "spark" / "entry.py"
    if not (Path(named) / SCRIPT).is_file():
        raise BadInput(f"there is no {Path(named) / SCRIPT}", f"set {SCRIPTS} to the folder that holds the Spark job")
    return Path(named) / SCRIPT


def spark_home() -> Path:
    """PySpark's folder, without importing PySpark, which takes a second. Raises BadInput."""
    home = _installed("pyspark")
    if not (home / "bin" / "spark-submit").is_file():
        raise BadInput(f"{home} has no spark-submit: it is pyspark-client, not pyspark", extras.install("pyspark"))
    return home


def _installed(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise BadInput(f"{package} is not installed", extras.install(package))
    return Path(spec.origin).parent


# Of Spark's Python workers. The threads of clients pass records on to each other; with an arena of memory for each
# thread, which is glibc's way, what one thread frees stays unused.
WORKER_ENVIRONMENT = {"MALLOC_ARENA_MAX": "2"}


def conf_for(master: str, own: Mapping[str, str]) -> dict[str, str]:
    """The settings of a submission. ``own`` are the user's, which always win.

    In local mode Spark listens only on this machine, and starts as fast as it can.
    """
    conf = {
        "spark.ui.showConsoleProgress": "false",
        "spark.submit.deployMode": "client",
        "spark.log.level": "WARN",  # Spark writes 20 INFO lines about each range
        **{f"spark.executorEnv.{name}": value for name, value in WORKER_ENVIRONMENT.items()},
    }
    if master.startswith("local"):
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false"}
    if local.is_local(master):
        conf |= local.conf(spark_home(), own)
    return {**conf, **own}


def package_for(master: str, here: Workspace) -> Path | None:
    """Put this package in a place where the driver and its workers find it. Returns the value for ``--py-files``, or
    None.

    A cluster gets a zip. In local mode all processes import from the folders of this installation, whose modules are
    compiled.
    """
    if local.is_local(master):
        link_code(here.links, spark_home(), _installed("py4j"))
        return None
    write_package(here.package)
    return here.package


PY_FILES = "spark.submit.pyFiles"


def py_files(package: Path | None, conf: Mapping[str, str]) -> str | None:
    """The value of ``--py-files``: this package, and the files of the user's setting, which it would replace."""
    return ",".join(filter(None, [str(package) if package else "", conf.get(PY_FILES, "")])) or None


def environment(master: str, here: Workspace) -> dict[str, str]:
    """The environment of spark-submit, and so of all processes of Spark on this machine."""
    variables = {
        **without_secrets(),
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),  # on a cluster: the workers' Python
        "PYSPARK_DRIVER_PYTHON": os.environ.get("PYSPARK_DRIVER_PYTHON", sys.executable),
        "SPARK_HOME": str(spark_home()),
    }
    if local.is_local(master):
        variables |= {"PYTHONPATH": given_path(here.links), **local.variables()}
    return variables


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


class SubmitLauncher:
    """A `Launcher` behind one call of spark-submit. If Spark ends before its time, the next job starts it again."""

    def __init__(self, submission: Submission) -> None:
        self._submission, self._stack = submission, ExitStack()
        self._driver: LauncherSide | None = None
        self._log = SparkLog("")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._driver is not None and kind is None:
                self._driver.close()
                self._submission.wait(STOP_SECONDS)
        finally:
            self._end()

    def submit(self, job: Job, deliver: Deliver) -> JobEnd:
        """Raises BadInput, ConnectionMissing, OutOfTime, Unreachable if Spark does not start, and what ``deliver``
        raises.
        """
        with timer(patience(job), self._submission.stop) as is_over:
            try:
                driver = self._started(job)
                driver.send(job)
                end = _collect(driver, deliver)
                return self._explained(end) if end.error else end
            except Gone:
                ended = self._submission.wait(STOP_SECONDS)
                self._end()
                if is_over.is_set():
                    raise out_of_time(job) from None
                return self._explained(
                    JobEnd(error=f"Spark ended with {ended} before its work was done", remedy=self._see_log())
                )

    def _explained(self, end: JobEnd) -> JobEnd:
        """The end with the true cause, if Spark's log has it. The application ends with its job. Raises Unreachable,
        BadInput if no master took it.
        """
        self._end()
        self._submission.wait(READ_SECONDS)  # its log is read to the end
        if (failure := self._log.failure) is None:
            return end
        if failure.is_start:
            raise (Unreachable if failure.is_passing else BadInput)(failure.what, failure.remedy)
        return JobEnd.of(failure)

    def _hear(self, line: str) -> None:
        """Read one line of the log. If no master takes the application, end it: Spark would go on trying for 40 s."""
        if self._log.hear(line):
            threading.Thread(target=self._submission.stop, daemon=True, name="stop-spark").start()

    def _started(self, job: Job) -> LauncherSide:
        if self._driver is None:
            self._log = SparkLog(master := self._submission.master)
            if silent := reach.silent(master):
                raise Unreachable(f"{MASTER_SILENT.what}: {silent}", MASTER_SILENT.remedy)
            here = self._stack.enter_context(workspace())
            listening = self._stack.enter_context(closing(listen(here.socket)))
            self._submission.start(here, f"kafka-replication {job.replication.name}", self._hear)
            ended: list[str] = []

            def is_over() -> bool:
                ended.extend(filter(None, [self._submission.wait(0)]))
                return bool(ended)

            self._driver = LauncherSide.accept(listening, is_over)
            if self._driver is None:
                self._explained(JobEnd())
                why = f": {self._log.not_submitted}" if self._log.not_submitted else ""
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


def _collect(driver: LauncherSide, deliver: Deliver) -> JobEnd:
    """Deliver the results until the job ends. Raises Gone."""
    end = JobEnd()
    for answers in driver.answers():
        results = [answer.result for answer in answers if answer.result is not None]
        if results:
            deliver(results)
        end = answers[-1].end or end
    return end


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


def patience(job: Job) -> float:
    """Seconds after which Spark is stopped. Its workers end before that, unless they hang or started late."""
    return math.inf if job.seconds is None else job.seconds + GRACE


def out_of_time(job: Job) -> OutOfTime:
    return deadline.out_of_time(f"the Spark job of {job.replication.name} was stopped")


class TerminalSubmission:
    """Calls spark-submit as in a terminal. Spark's log goes to ``output``, or to this process's stderr."""

    def __init__(self, spark: SparkConnection, conf: Mapping[str, str], output: OutputFile | None = None) -> None:
        self._spark, self._conf, self._output = spark, conf, output
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None

    @property
    def master(self) -> str:
        return self._spark.master

    def start(self, here: Workspace, name: str, hear: Callable[[str], object]) -> None:
        """Start in a new process group. Raises BadInput if the file for the log cannot be made."""
        with ExitStack() as stack:
            log_to = sys.stderr.buffer if self._output is None else stack.enter_context(self._output.open())
            self._process = subprocess.Popen(
                self.command(here, name),
                env=environment(self._spark.master, here),
                start_new_session=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            assert self._process.stdout is not None
            arguments = (self._process.stdout, log_to, stack.pop_all(), hear)
            self._reader = threading.Thread(target=_pass_on, args=arguments, daemon=True, name="spark-log")
            self._reader.start()

    def wait(self, seconds: float) -> str | None:
        assert self._process is not None and self._reader is not None
        with suppress(subprocess.TimeoutExpired):
            code = self._process.wait(seconds)
            self._reader.join(READ_SECONDS)
            return f"exit code {code}"
        return None

    def stop(self) -> None:
        if self._process is not None:
            end_group(self._process, STOP_SECONDS)

    def log_place(self) -> str:
        return "above" if self._output is None or self._output.path is None else str(self._output.path)

    def command(self, here: Workspace, name: str) -> list[str]:
        """The command contains no secrets; they go through the socket. Puts the package into the folder."""
        command = [str(spark_home() / "bin" / "spark-submit"), "--master", self._spark.master, "--name", name]
        conf = conf_for(self._spark.master, {**self._spark.conf, **self._conf})
        for key, value in conf.items():
            command += ["--conf", f"{key}={value}"]
        if files := py_files(package_for(self._spark.master, here), conf):
            command += ["--py-files", files]
        return [*command, str(script()), str(here.socket)]


def _pass_on(lines: IO[bytes], to: IO[bytes], whose: ExitStack, hear: Callable[[str], object]) -> None:
    """Pass on each line of Spark's log as it comes. ``hear`` gets also a line that a full disk does not take."""
    with whose, lines:
        for line in lines:
            hear(line.decode(errors="replace"))
            with suppress(OSError, ValueError):
                to.write(line)
                to.flush()


def terminal_launcher(
    spark: SparkConnection, conf: Mapping[str, str], output: OutputFile | None = None
) -> SubmitLauncher:
    """The command line's launcher."""
    return SubmitLauncher(TerminalSubmission(spark, conf, output))
