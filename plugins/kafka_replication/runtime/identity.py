"""Identifies a process by host, pid and start time, because the system reuses pids."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

import psutil

from kafka_replication.runtime.private_json import deferred

# Two readings of one process's start may differ, because the kernel gives its own start in whole seconds.
TOLERANCE = 1.5


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process on ``host``. ``started`` is in seconds after the machine's start, so clock changes do not alter it.

    ``pid_space`` names the space of the pid: the machine's boot and the namespaces of the process. Containers may share
    a host name and still have their own pids. It is empty if the system does not show it.
    """

    host: str
    pid: int
    started: float
    pid_space: str = ""

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity:
        """Raises psutil.NoSuchProcess."""
        return cls(socket.gethostname(), pid, _started(psutil.Process(pid)), _pid_space())

    @classmethod
    def own(cls) -> ProcessIdentity:
        return cls.of(os.getpid())

    def is_alive(self) -> bool:
        """True if the process still runs. A zombie does not. Call this only on the process's own ``host``."""
        try:
            process = psutil.Process(self.pid)
            same = abs(_started(process) - self.started) <= TOLERANCE
            return same and is_running(process)
        except psutil.NoSuchProcess:
            return False

    def is_gone(self) -> bool:
        """True if the process has certainly ended. False if it runs, or if this process cannot know.

        A namespace's number is used again only after the last process of the earlier one has ended. So where the number
        is the same, a missing pid always means that the process is gone.
        """
        if not self.pid_space or (self.host, self.pid_space) != (socket.gethostname(), _pid_space()):
            return False
        try:
            os.kill(self.pid, 0)  # not /proc, which may hide the processes of other users
        except ProcessLookupError:
            return True
        except OSError:
            pass  # it exists
        try:
            process = psutil.Process(self.pid)
            same = abs(_started(process) - self.started) <= TOLERANCE
            return not same or process.status() == psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False


def is_running(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _started(process: psutil.Process) -> float:
    return round(float(process.create_time() - psutil.boot_time()), 2)


def _pid_space() -> str:
    """Boot id, pid namespace and time namespace; the latter shifts the start times that a process sees. Linux only."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespaces = [str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in ("pid", "time")]
    except OSError:
        return ""
    return " ".join([boot, *namespaces])


IDENTITY = deferred(ProcessIdentity)
