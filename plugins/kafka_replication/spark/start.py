"""The start of a Spark process that runs this package: the driver's entry point, and the path to the code. In local
mode the process gives its place to one that has loaded its modules before (`preloaded`).

spark-submit starts this file if the package is installed, else `spark_jobs/replicate_ranges.py`.

This module imports nothing of PySpark, because `prefer_linked` first sets the place to import PySpark from.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from pathlib import Path

import kafka_replication
from kafka_replication.runtime.garbage import loading

# Sockets in the launcher's folder, at which preloaded processes wait.
DRIVER_PLACE, DAEMON_PLACE = "driver.place", "daemon.place"
TAKEN, ENDED = b"t", b"e"  # said by the process that waited: it has taken the place; it ends with exit code 0
_READ_AT_START = re.compile("LD_|MALLOC_|PYTHON(?!PATH|_)")  # variables


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


def interpreter() -> list[str]:
    """All that a process of local mode keeps from its start: its Python, the variables that are read only then, and the
    places of its modules. These are its path without the links, the folder of its program, and Spark's zips.
    """
    variables = sorted(f"{name}={value}" for name, value in os.environ.items() if _READ_AT_START.match(name))
    path = [each for each in sys.path[2:] if not each.startswith(os.environ.get("SPARK_HOME", "-"))]
    return [sys.executable, sys.prefix, sys.version, *variables, *path]


def give_place(at: Path) -> int | None:
    """Let the process that waits at this socket go on in place of this one: with its standard streams, arguments,
    environment and path of modules. Returns the exit code when that process has ended. None if none waits there that
    could do so; nothing is changed then.
    """
    taken = False
    own = interpreter(), sys.argv, dict(os.environ), sys.path, os.getppid()
    try:
        with socket.socket(socket.AF_UNIX) as to:
            to.connect(os.fspath(at))
            socket.send_fds(to, [b"\0"], [0, 1, 2])
            to.sendall(json.dumps(own).encode() + b"\n")
            taken = to.recv(1) == TAKEN
            return (0 if to.recv(1) == ENDED else 1) if taken else None
    except OSError:
        return 1 if taken else None


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
