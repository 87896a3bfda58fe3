"""Processes that outlive the program that started them: recorded in a file, recognised by pid **and** start time,
stopped by that.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from stack.errors import StackError

_TICKS = os.sysconf("SC_CLK_TCK")
_ENDED = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
# Our own children: a child that ended stays a zombie until its parent asks for it.
_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """One process of this machine. The start time tells it from a later process that was given the same pid."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> ProcessRecord | None:
        """The living process with this pid, or None."""
        started = _start_time(pid)
        return None if started is None else cls(pid, started)

    @classmethod
    def read(cls, path: Path) -> ProcessRecord | None:
        """The record in a file, or None where there is no file or no readable record."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            value = json.loads(path.read_text())
            return cls(int(value["pid"]), str(value["started"]))
        return None

    def write(self, path: Path) -> None:
        path.write_text(json.dumps({"pid": self.pid, "started": self.started}) + "\n")

    @property
    def alive(self) -> bool:
        child = _children.get(self.pid)
        if child is not None and child.poll() is not None:
            del _children[self.pid]
        return _start_time(self.pid) == self.started

    def send(self, signum: signal.Signals) -> None:
        """Signal this process; nothing happens where it has ended, even if its pid is in use again."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signum)

    def send_group(self, signum: signal.Signals) -> None:
        """Signal what is left of the session that this process led. Only valid for processes started by `launch`."""
        for pid in _session_members(self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signum)

    def wait(self, seconds: float) -> bool:
        """Whether the process has ended within that time."""
        deadline = time.monotonic() + seconds
        while self.alive:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True


def launch(
    command: Sequence[str], log: Path, record: Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> ProcessRecord:
    """Start a process in a session of its own, append its output to ``log`` and record it in the file ``record``."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=env,
            cwd=cwd,
        )
    _children[process.pid] = process
    started = ProcessRecord.of(process.pid) or ProcessRecord(process.pid, "ended at once")
    started.write(record)
    return started


def end(record: Path, signum: signal.Signals, who: str, seconds: float) -> None:
    """Signal the process that a file records, and after so many seconds end it with SIGKILL. Forgets the record.

    Raises StackError, which names ``who``, for one that survives.
    """
    process = ProcessRecord.read(record)
    if process is not None and process.alive:
        process.send(signum)
        if not process.wait(seconds):
            process.send(signal.SIGKILL)
            if not process.wait(seconds):
                raise StackError(
                    f"{who} (pid {process.pid}) survives SIGKILL", "look at that process; its disk may hang"
                )
    record.unlink(missing_ok=True)


def tail(log: Path, lines: int = 15, offset: int = 0) -> str:
    """The last lines of a log, as far as they were written after ``offset`` bytes."""
    if not log.exists():
        return "(no log)"
    return "\n".join(since(log, offset).splitlines()[-lines:]) or "(empty log)"


def complaints(log: Path, lines: int = 10, offset: int = 0) -> str:
    """The lines of a Java log that name errors and their causes.

    The last lines of a dying JVM are mostly about its shutdown.
    """
    found = [
        line
        for line in since(log, offset).splitlines()
        if re.search(r" (ERROR|FATAL) |^Caused by: |^[\w.]+(Exception|Error): ", line)
    ]
    return "\n".join(found[:lines])


def since(log: Path, offset: int) -> str:
    """What was written to a log after its first ``offset`` bytes."""
    with log.open("rb") as file:
        file.seek(offset)
        return file.read().decode(errors="replace")


def _start_time(pid: int) -> str | None:
    """When a process started, in clock ticks since the system did (starttime in proc(5)); None for one that does not
    exist or is only a zombie.

    Not as a time of day: Linux derives that from the clock, which may be set while the process runs.
    A killed process whose first thread is a zombie while others still end is alive: its ports and files are open until
    the last thread is gone.
    """
    try:
        process = psutil.Process(pid)
        ended = process.status() in _ENDED and process.num_threads() <= 1
        return None if ended else str(round((process.create_time() - psutil.boot_time()) * _TICKS))
    except psutil.Error:
        return None


def _session_members(session: int) -> list[int]:
    """The living processes of a session. psutil does not know sessions, the system does."""
    return [process.pid for process in psutil.process_iter() if _session_of(process) == session]


def _session_of(process: psutil.Process) -> int | None:
    try:
        return None if process.status() in _ENDED else os.getsid(process.pid)
    except (psutil.Error, OSError):
        return None


def sweep(folder: Path) -> None:
    """End every process that has a record below a folder."""
    for path in folder.rglob("*.pid"):
        record = ProcessRecord.read(path)
        if record is not None:
            record.send(signal.SIGKILL)
