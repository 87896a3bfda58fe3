"""A job's private folder on the machine that submits it, and what killed processes left of theirs."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import kafka_replication
from kafka_replication.runtime.identity import IDENTITY, ProcessIdentity
from kafka_replication.spark.jobs import JOB, RESULT, Job, JobResult, write_private

PREFIX = "kafka-replication-job-"
PACKAGE = Path(kafka_replication.__file__).parent


@dataclass(frozen=True, slots=True)
class Workspace:
    """The job with its client settings, the zipped package, where the result will be, and whose folder it is."""

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

    @property
    def owner(self) -> Path:
        return self.folder / "owner.json"

    def read_result(self) -> JobResult:
        return RESULT.validate_json(self.result.read_bytes())


@contextlib.contextmanager
def workspace(job: Job) -> Iterator[Workspace]:
    """Write the job and the package into a new folder that only this user can enter, and remove it afterwards."""
    sweep()
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as folder:
        here = Workspace(Path(folder))
        write_private(here.owner, IDENTITY.dump_json(ProcessIdentity.own()))  # before anything that is secret
        write_private(here.job, JOB.dump_json(job))
        write_package(here.package)
        yield here


def write_package(path: Path) -> None:
    """This package as a zip for the executors. Zips know no time before 1980; reproducible images have such files."""
    with zipfile.ZipFile(path, "w", strict_timestamps=False) as archive:
        for file in sorted(PACKAGE.rglob("*.py")):
            archive.write(file, file.relative_to(PACKAGE.parent))


def sweep() -> None:
    """Remove the folders of this user's killed processes: a process that was killed could not remove its own, with
    the passwords in it.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if _is_own(folder) and _is_orphan(Workspace(folder)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_own(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def _is_orphan(here: Workspace) -> bool:
    """Whether the process that made it is known, was one of this machine, and is gone."""
    try:
        owner = IDENTITY.validate_json(here.owner.read_bytes())
    except (OSError, ValueError):
        return False
    return owner.host == socket.gethostname() and not owner.is_alive()
