"""A launcher's private folder on the machine that submits. Also removes folders that killed processes left.

The environment for Spark's processes: that of this process without the variables that may hold a secret.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import kafka_replication
from kafka_replication.connections import STORE_URL
from kafka_replication.runtime.identity import IDENTITY, ProcessIdentity

PREFIX = "kafka-replication-job-"
PACKAGE = Path(kafka_replication.__file__).parent


LONGEST_PARENT = 60  # bytes: the path of a Unix socket may have 107 on Linux, and 103 on other systems


class Workspace:
    """The folder and its files: the driver's socket, the owner process, and the package: as a zip for a cluster's
    executors, as links for the processes on this machine.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.socket, self.owner = folder, folder / "driver.sock", folder / "owner.json"
        self.package, self.links = folder / "kafka_replication.zip", folder / "python"


@contextlib.contextmanager
def workspace() -> Iterator[Workspace]:
    """A new folder that only this user may open. Removed afterwards."""
    sweep()
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=_parent(), ignore_cleanup_errors=True) as folder:
        here = Workspace(Path(folder))
        write_private(here.owner, IDENTITY.dump_json(ProcessIdentity.own()))
        yield here


def _parent() -> Path:
    """The folder for temporary files, or /tmp if its path is too long for a socket."""
    temporary = Path(tempfile.gettempdir())
    return temporary if len(os.fsencode(temporary)) <= LONGEST_PARENT else Path("/tmp")


def write_private(path: Path, content: bytes) -> None:
    """Write a new file that only the owner may read (0600)."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def write_package(path: Path) -> None:
    """Zip this package for the executors. A zip has no times before 1980, but files of reproducible images have."""
    with zipfile.ZipFile(path, "w", strict_timestamps=False) as archive:
        for file in sorted(PACKAGE.rglob("*.py")):
            archive.write(file, file.relative_to(PACKAGE.parent))


def link_code(folder: Path, *packages: Path) -> None:
    """A new folder for ``PYTHONPATH`` with a link to this package and to others, and nothing else beside them."""
    folder.mkdir()
    for package in (PACKAGE, *packages):
        (folder / package.name).symlink_to(package)


def sweep() -> None:
    """Remove the folders of this user's killed processes. A killed process cannot remove its own folder.

    A folder is one of these if it names its owner process, and that process is certainly gone. If the system has no pid
    spaces, processes of one host name are in the same space.
    """
    for folder in _parent().glob(f"{PREFIX}*"):
        try:
            status = folder.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
                continue
            owner = IDENTITY.validate_json(Workspace(folder).owner.read_bytes())
        except (OSError, ValueError):
            continue
        if owner.pid_space or ProcessIdentity.own().pid_space:
            is_gone = owner.is_gone()
        else:
            is_gone = owner.host == socket.gethostname() and not owner.is_alive()
        if is_gone:
            shutil.rmtree(folder, ignore_errors=True)


# Connections, variables and configuration, for example the password of Airflow's own database; and what Airflow's task
# gets from its supervisor. Spark needs none of them: client settings reach its workers with their tasks.
PRIVATE = ("AIRFLOW_CONN_", "AIRFLOW_VAR_", "AIRFLOW__", "_AIRFLOW_", "__AIRFLOW_", STORE_URL)


def without_secrets() -> dict[str, str]:
    """This process's environment, for Spark's processes. Crash reports and logs of a JVM may show it."""
    return {name: value for name, value in os.environ.items() if not name.startswith(PRIVATE)}
