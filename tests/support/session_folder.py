"""The state folder of one test session: whatever its processes start together lies there, and ends with it."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from stack.processes import ProcessRecord, sweep

VARIABLE = "KAFKA_REPLICATION_TEST_FOLDER"
_PREFIX = "kafka-replication-tests-"
_OWNER = "pytest.pid"


def create() -> None:
    """A fresh one, named in the environment. A session that was killed leaves brokers behind: the next one ends them."""
    for leftover in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        owner = ProcessRecord.read(leftover / _OWNER)
        if owner is not None and not owner.alive:
            _end(leftover)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    mine = ProcessRecord.of(os.getpid())
    assert mine is not None
    mine.write(folder / _OWNER)
    os.environ[VARIABLE] = str(folder)


def current() -> Path:
    return Path(os.environ[VARIABLE])


def remove() -> None:
    """End every process that has its record there, then forget it."""
    folder = current()
    (folder / _OWNER).unlink()  # this process is not among those to end
    _end(folder)


def _end(folder: Path) -> None:
    sweep(folder)
    shutil.rmtree(folder, ignore_errors=True)
