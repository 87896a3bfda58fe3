"""Submit a job with spark-submit and wait for it: the command line's launcher, and the parts that Airflow's launcher
shares with it.
"""

from __future__ import annotations

import importlib.util
import logging
import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from kafka_replication.connections.port import SparkConnection
from kafka_replication.model.errors import BadInput, OutOfTime, Unreachable
from kafka_replication.runtime.deadline import Deadline
from kafka_replication.runtime.stopping import end_group
from kafka_replication.spark import submitter
from kafka_replication.spark.jobs import Job, JobResult
from kafka_replication.spark.workspace import PACKAGE, Workspace, workspace

log = logging.getLogger(__name__)
SCRIPTS = "KAFKA_REPLICATION_SPARK_JOBS"
STOP_SECONDS = 15.0
GRACE = 15.0


def script(kind: str) -> Path:
    """The entry point: in the folder that the environment names, else in ``spark_jobs/`` beside the package, else in
    the installed package. Raises BadInput if the named folder has no entry point.
    """
    name = "copy_ranges.py" if kind == "copy" else "verify_ranges.py"
    named, beside = os.environ.get(SCRIPTS), PACKAGE.parents[1] / "spark_jobs" / name
    if named is None:
        return beside if beside.is_file() else PACKAGE / "spark" / "entry.py"
    if not (Path(named) / name).is_file():
        raise BadInput(f"there is no {Path(named) / name}", f"set {SCRIPTS} to the folder that holds the Spark jobs")
    return Path(named) / name


def spark_home() -> Path:
    """PySpark's folder, without importing PySpark, which takes a second."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise BadInput("PySpark is not installed", "install requirements.txt")
    return Path(spec.origin).parent


def local_conf(master: str) -> dict[str, str]:
    """Settings that every submission needs. In local mode Spark listens only on this machine."""
    conf = {"spark.ui.showConsoleProgress": "false", "spark.submit.deployMode": "client"}
    if master.startswith("local"):
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false"}
    return conf


def environment() -> dict[str, str]:
    """The variables that spark-submit gets in addition to this process's environment."""
    return {
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),  # on a cluster: the workers' Python
        "PYSPARK_DRIVER_PYTHON": os.environ.get("PYSPARK_DRIVER_PYTHON", sys.executable),
        "SPARK_HOME": str(spark_home()),
        **submitter.environment(),
    }


class Submission(Protocol):
    """One way to call spark-submit."""

    def run(self, job: Job, here: Workspace) -> str:
        """Call spark-submit and wait. Returns how it ended, for an error message. Raises BadInput."""

    def stop(self) -> None:
        """End spark-submit, if it runs, and all its processes on this machine. Another thread calls this."""


class SubmitLauncher:
    """A `Launcher` that calls spark-submit for each job."""

    def __init__(self, submission: Submission) -> None:
        self._submission = submission

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._submission.stop()

    def submit(self, job: Job) -> JobResult:
        """Raises BadInput, ConnectionMissing, OutOfTime, and Unreachable if Spark left no result."""
        with workspace(job) as here:
            with after(patience(job), self._submission.stop) as is_over:
                ended = self._submission.run(job, here)
            if here.result.exists():
                return here.read_result()
            if is_over.is_set():
                raise out_of_time(job)
            raise Unreachable(
                f"the Spark {job.kind} job ended with {ended} and left no result", "see Spark's log above; run again"
            )


@contextmanager
def after(seconds: float, act: Callable[[], None]) -> Iterator[threading.Event]:
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
    return Deadline().over(f"the Spark {job.kind} job of {job.replication} was stopped")


class TerminalSubmission:
    """Calls spark-submit as in a terminal. Spark's log goes to this process's stderr."""

    def __init__(self, spark: SparkConnection, conf: Mapping[str, str]) -> None:
        self._spark, self._conf = spark, conf
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, job: Job, here: Workspace) -> str:
        """Run in a new process group, and end the group when this call ends for any reason."""
        self._process = subprocess.Popen(
            self.command(job, here), env={**os.environ, **environment()}, start_new_session=True, stdout=sys.stderr
        )
        try:
            return f"exit code {self._process.wait()}"
        finally:
            self.stop()

    def stop(self) -> None:
        if self._process is not None:
            end_group(self._process, STOP_SECONDS)

    def command(self, job: Job, here: Workspace) -> list[str]:
        """The command contains no secrets; they are in the job file."""
        command = [str(spark_home() / "bin" / "spark-submit"), "--master", self._spark.master]
        for key, value in {**local_conf(self._spark.master), **self._spark.conf, **self._conf}.items():
            command += ["--conf", f"{key}={value}"]
        return [*command, "--py-files", str(here.package), str(script(job.kind)), str(here.job), str(here.result)]


def terminal_launcher(spark: SparkConnection, conf: Mapping[str, str]) -> SubmitLauncher:
    """The command line's launcher."""
    return SubmitLauncher(TerminalSubmission(spark, conf))
