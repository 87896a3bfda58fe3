"""The start of a Spark process that runs this package: the driver's entry point, and the path to the code. In local
mode the process gives its place to one that has loaded its modules before (`preloaded`).

spark-submit starts this file if the package is installed, else `spark_jobs/replicate_ranges.py`.

This module imports nothing of PySpark, because `prefer_linked` first sets the place to import PySpark from.
"""

from __future__ import annotations

import json
import os
import re
import resource
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import kafka_replication
from kafka_replication.runtime.garbage import loading

# Sockets in the launcher's folder, at which preloaded processes wait.
DRIVER_PLACE, DAEMON_PLACE = "driver.at", "daemon.at"
READY, GO = b"r", b"g"  # said by the process that waited, and by the one that gives its place
PATIENCE = 30.0  # seconds until one that is not ready is not waited for
KILLED = 137  # the exit code for one that ends without telling its own
LIMITS = [name for name in dir(resource) if name.startswith("RLIMIT_")]
# Variables that Spark sets for its Python processes, and Airflow's hook for spark-submit (PATH).
_OF_SPARK = re.compile(
    "_?SPARK_|PYSPARK_|PYTHON_(WORKER|UNIX|DAEMON|FAULTHANDLER|UDF)_|(PYTHONPATH|PATH|OMP_NUM_THREADS|MASTER)$"
)


def prefer_linked() -> Path | None:
    """In local mode, import PySpark from the launcher's folder of links (`workspace.link_code`). Returns the launcher's
    folder, or None in other modes.

    spark-submit puts ``pyspark.zip`` first. A zip has no compiled modules, so every process would compile PySpark anew.
    On a cluster this package itself comes from a zip, and nothing changes.
    """
    package = Path(kafka_replication.__file__).parent
    folder = str(package.parent)
    if package.is_symlink() and (package.parent / "pyspark").is_symlink() and folder in sys.path:
        sys.path.remove(folder)
        sys.path.insert(0, folder)
        return package.parent.parent
    return None


def interpreter(path: Sequence[str]) -> list[str]:
    """All that a process of local mode keeps from its start, or that libraries may have read already: its Python, the
    variables that Spark does not set, and the places of its modules, those in ``path`` without Spark's zips.
    """
    variables = sorted(f"{name}={value}" for name, value in os.environ.items() if not _OF_SPARK.match(name))
    places = [each for each in path if not each.startswith(os.environ.get("SPARK_HOME", "-"))]
    return [sys.executable, sys.prefix, sys.version, kafka_replication.__file__, *variables, *places]


def give_place(at: Path) -> int | None:
    """Let the process that waits at this socket go on in place of this one: with all that it has from the process that
    started it (standard streams, arguments, environment, limits, folder, mask of new files), and its path of modules.
    Returns the exit code when that process has ended. None if none waits there that could do so; nothing is changed
    then. Call it before anything is imported, behind `prefer_linked`.
    """
    limits = {name: resource.getrlimit(getattr(resource, name)) for name in LIMITS}
    os.umask(mask := os.umask(0o077))
    with socket.socket(socket.AF_UNIX) as to:
        to.settimeout(PATIENCE)
        try:
            folder = str(Path.cwd())
            # Its path has the links first, then the folder of its program.
            own = interpreter(sys.path[2:]), sys.argv, dict(os.environ), sys.path, os.getppid(), limits, mask, folder
            to.connect(os.fspath(at))
            socket.send_fds(to, [b"\0"], [0, 1, 2])
            to.sendall(json.dumps(own).encode() + b"\n")
            if to.recv(1) != READY:
                return None
            to.settimeout(None)
            to.sendall(GO)
        except OSError:
            return None
        code = b""
        with suppress(OSError):
            code = to.recv(1)
    if not code:
        print(f"the process that had the place of {os.getpid()} is gone", file=sys.stderr)
    return code[0] if code else KILLED


def main() -> None:
    """The driver's entry point: ``SCRIPT SOCKET``."""
    here = prefer_linked()
    if here is not None and (code := give_place(here / DRIVER_PLACE)) is not None:
        sys.exit(code)
    with loading():
        from kafka_replication.spark import driver

    driver.main(os.getppid())


if __name__ == "__main__":
    main()
