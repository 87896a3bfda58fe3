"""Looking at processes that may end meanwhile."""

from __future__ import annotations

import contextlib

import psutil


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
