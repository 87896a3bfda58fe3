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
    """A process's start time, as the system writes it; None for one that does not exist or is only a zombie.

    A killed process whose first thread is a zombie while others still end is alive: its ports and files are open until
    the last thread is gone.
    """
    fields = _proc_stat(pid)
    if fields is not None:
        return None if fields[0] in "ZX" and int(fields[17]) <= 1 else fields[19]
    if Path("/proc/self/stat").exists():
        return None
    answer = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.split(None, 1)
    return answer[1].strip() if len(answer) == 2 and not answer[0].startswith("Z") else None


def _proc_stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the command's name (proc(5)): 0 is the state, 3 the session, 17 the threads,
    19 the start time.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _session_members(session: int) -> list[int]:
    if not Path("/proc/self/stat").exists():
        answer = subprocess.run(["ps", "-Ao", "pid=,sess="], capture_output=True, text=True, check=False).stdout
        pairs = [line.split() for line in answer.splitlines()]
        return [int(pair[0]) for pair in pairs if len(pair) == 2 and pair[1] == str(session)]
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    found = ((pid, _proc_stat(pid)) for pid in pids)
    return [pid for pid, fields in found if fields is not None and fields[3] == str(session) and fields[0] not in "ZX"]


def sweep(folder: Path) -> None:
    """End every process that has a record below a folder."""
    for path in folder.rglob("*.pid"):
        record = ProcessRecord.read(path)
        if record is not None:
            record.send(signal.SIGKILL)
