"""Identifies a process by host, pid and start time, because the system reuses pids."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

import psutil
from pydantic import TypeAdapter

# Two readings of one process's start may differ, because the kernel gives its own start in whole seconds.
TOLERANCE = 1.5


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process on ``host``. ``started`` is in seconds after the machine's start, so clock changes do not alter it."""

    host: str
    pid: int
    started: float

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity:
        """Raises psutil.NoSuchProcess."""
        return cls(socket.gethostname(), pid, _started(psutil.Process(pid)))

    @classmethod
    def own(cls) -> ProcessIdentity:
        return cls.of(os.getpid())

    def is_alive(self) -> bool:
        """Whether the process still runs. A zombie does not. Call this only on the process's own ``host``."""
        try:
            process = psutil.Process(self.pid)
            same = abs(_started(process) - self.started) <= TOLERANCE
            return same and is_running(process)
        except psutil.NoSuchProcess:
            return False


def is_running(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _started(process: psutil.Process) -> float:
    return round(float(process.create_time() - psutil.boot_time()), 2)


IDENTITY = TypeAdapter(ProcessIdentity)
