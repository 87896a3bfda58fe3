"""The state folder of one test session: whatever its processes start together lies there, and ends with it."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO

from stack.processes import sweep

VARIABLE = "KAFKA_REPLICATION_TEST_FOLDER"
_PREFIX = "kafka-replication-session-"
_OWNER = "owner.lock"  # locked as long as the session's first process lives
_locks: dict[Path, IO[str]] = {}


def create() -> None:
    """A fresh one, named in the environment. A session that was killed leaves brokers behind: the next one ends them."""
    for leftover in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        if (leftover / _OWNER).exists() and _lock(leftover):
            _end(leftover)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    _lock(folder)
    os.environ[VARIABLE] = str(folder)


def current() -> Path:
    return Path(os.environ[VARIABLE])


def remove() -> None:
    """End every process that has its record there, then forget it."""
    _end(current())


def _lock(folder: Path) -> bool:
    """Whether this process owns it now: nobody else does."""
    file = (folder / _OWNER).open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return False
    _locks[folder] = file
    return True


def _end(folder: Path) -> None:
    sweep(folder)
    shutil.rmtree(folder, ignore_errors=True)
    _locks.pop(folder).close()
