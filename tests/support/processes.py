"""Looking at processes that may end meanwhile."""

from __future__ import annotations

import contextlib

import psutil

from kafka_replication.spark.local import DAEMON


def is_alive(process: psutil.Process) -> bool:
    """Not ended, nor waiting for its parent to notice that it has."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def command(process: psutil.Process) -> str:
    """Its command line; empty for one that has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        if is_alive(process):
            return " ".join(process.cmdline())
    return ""


def is_worker(process: psutil.Process) -> bool:
    """A Python worker of Spark: PySpark's daemon forked it, so it has the daemon's command line. In local mode the
    driver may have forked the daemon.
    """
    line, parent = command(process), process.parent()
    if parent is None or command(parent) != line or not (DAEMON in line or "pyspark.daemon" in line):
        return False
    before = parent.parent()
    return " -m " in line or before is None or command(before) == line


def is_driver(process: psutil.Process) -> bool:
    """Spark's Python driver of local mode that had loaded its modules before; the one that Spark started waits for it."""
    parent = process.parent()
    return " -c " in command(process) and DAEMON in command(process) and (not parent or DAEMON not in command(parent))
