"""Submit a job with spark-submit and wait for it; the command line's launcher, and what the Airflow operator shares."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

import kafka_replication
from kafka_replication.connections.port import SparkConnection
from kafka_replication.model.errors import BadInput, OutOfTime, Unreachable
from kafka_replication.runtime.deadline import Deadline
from kafka_replication.runtime.stopping import end_group
from kafka_replication.spark.driver import PARENT
from kafka_replication.spark.jobs import JOB, RESULT, Job, JobResult, write_private

log = logging.getLogger(__name__)
SCRIPTS = "KAFKA_REPLICATION_SPARK_JOBS"
STOP_SECONDS = 15.0
GRACE = 15.0
PACKAGE = Path(kafka_replication.__file__).parent


def script(kind: str) -> Path:
    """The entry point in ``spark_jobs/``. Raises BadInput where the folder is not beside the package."""
    folder = Path(os.environ.get(SCRIPTS) or PACKAGE.parents[1] / "spark_jobs")
    path = folder / ("copy_ranges.py" if kind == "copy" else "verify_ranges.py")
    if not path.is_file():
        raise BadInput(f"there is no {path}", f"set {SCRIPTS} to the folder that holds the Spark jobs")
    return path


def local_conf(master: str) -> dict[str, str]:
    """Settings every submission needs; in local mode nothing may listen beyond this machine."""
    conf = {"spark.ui.showConsoleProgress": "false", "spark.submit.deployMode": "client"}
    if master.startswith("local"):
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false"}
    return conf


@dataclass(frozen=True, slots=True)
class Workspace:
    """A job's private folder: the job with its client settings, the zipped package, and where the result will be."""

    folder: Path

    @property
    def job(self) -> Path:
        return self.folder / "job.json"

    @property
    def result(self) -> Path:
        return self.folder / "result.json"

    @property
    def package(self) -> Path:
        return self.folder / "kafka_replication.zip"

    def read_result(self) -> JobResult:
        return RESULT.validate_json(self.result.read_bytes())


@contextlib.contextmanager
def workspace(job: Job) -> Iterator[Workspace]:
    """Write the job and the package into a new folder that only this user can enter, and remove it afterwards."""
    with tempfile.TemporaryDirectory(prefix="kafka-replication-") as folder:
        here = Workspace(Path(folder))
        write_private(here.job, JOB.dump_json(job))
        with zipfile.ZipFile(here.package, "w") as archive:
            for path in sorted(PACKAGE.rglob("*.py")):
                archive.write(path, path.relative_to(PACKAGE.parent))
        yield here


def environment() -> dict[str, str]:
    return {
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),  # on a cluster: the workers' Python
        "PYSPARK_DRIVER_PYTHON": os.environ.get("PYSPARK_DRIVER_PYTHON", sys.executable),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        PARENT: str(os.getpid()),
    }


@dataclass(frozen=True, slots=True)
class SubmitLauncher:
    """Launches jobs from a terminal; Spark's log goes to this process's stderr."""

    spark: SparkConnection
    conf: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, job: Job) -> JobResult:
        with workspace(job) as here:
            command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", self.spark.master]
            for key, value in {**local_conf(self.spark.master), **self.spark.conf, **self.conf}.items():
                command += ["--conf", f"{key}={value}"]
            command += ["--py-files", str(here.package), str(script(job.kind)), str(here.job), str(here.result)]
            code = _run(command, job)
            if not here.result.exists():
                raise Unreachable(
                    f"the Spark {job.kind} job ended with {code} and left no result", "see Spark's log above; run again"
                )
            return here.read_result()


def _run(command: list[str], job: Job) -> int:
    """Run in a process group of its own and take it down with us, whatever the reason. Raises OutOfTime."""
    process = subprocess.Popen(command, env={**os.environ, **environment()}, start_new_session=True, stdout=sys.stderr)
    try:
        return process.wait(min(patience(job), threading.TIMEOUT_MAX))
    except subprocess.TimeoutExpired:
        raise out_of_time(job) from None
    finally:
        end_group(process, STOP_SECONDS)


def patience(job: Job) -> float:
    """Seconds after which Spark is stopped: its workers end by themselves before, unless they are stuck or their turn
    came late.
    """
    return math.inf if job.seconds is None else job.seconds + GRACE


def out_of_time(job: Job) -> OutOfTime:
    return Deadline().over(f"the Spark {job.kind} job of {job.replication} was stopped")
