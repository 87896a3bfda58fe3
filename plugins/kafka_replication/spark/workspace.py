"""A job's private folder on the machine that submits it, and the removal of folders that killed processes left."""

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
    """The folder and its files: the job with client settings, the zipped package, the result, the owner process."""

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
    """Write the job and the package into a new folder that only this user may open. Remove the folder afterwards."""
    sweep()
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as folder:
        here = Workspace(Path(folder))
        write_private(here.owner, IDENTITY.dump_json(ProcessIdentity.own()))  # before any secret is written
        write_private(here.job, JOB.dump_json(job))
        write_package(here.package)
        yield here


def write_package(path: Path) -> None:
    """Zip this package for the executors. A zip has no times before 1980, but files of reproducible images have."""
    with zipfile.ZipFile(path, "w", strict_timestamps=False) as archive:
        for file in sorted(PACKAGE.rglob("*.py")):
            archive.write(file, file.relative_to(PACKAGE.parent))


def sweep() -> None:
    """Remove the folders of this user's killed processes. A killed process cannot remove its own folder, which holds
    passwords.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if _is_own(folder) and _is_orphan(Workspace(folder)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_own(folder: Path) -> bool:
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()


def _is_orphan(here: Workspace) -> bool:
    """Whether the folder names its owner process, and that process ran on this machine and is gone."""
    try:
        owner = IDENTITY.validate_json(here.owner.read_bytes())
    except (OSError, ValueError):
        return False
    return owner.host == socket.gethostname() and not owner.is_alive()
