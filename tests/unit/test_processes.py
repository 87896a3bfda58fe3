"""Processes are recognised by their pid and their start, and a zombie has ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from stack.processes import ProcessRecord, launch
from tests.support.processes import is_alive

WAITS = "import sys; print('ready', flush=True); sys.stdin.read()"
# Starts a child in the same session, writes its pid, and ends.
LEAVES_A_CHILD = "import subprocess, sys; print(subprocess.Popen(['sleep', '600']).pid, flush=True)"


def test_this_process_lives_and_its_start_tells_it_from_a_later_one(tmp_path: Path) -> None:
    mine = ProcessRecord.of(os.getpid())
    assert mine is not None and mine.alive
    mine.write(tmp_path / "mine.pid")
    assert ProcessRecord.read(tmp_path / "mine.pid") == mine
    assert not ProcessRecord(os.getpid(), "an earlier start").alive


def test_a_zombie_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", WAITS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        record = ProcessRecord.of(process.pid)
        assert record is not None and record.alive
        process.kill()
        assert record.wait(30), "nobody has waited for it yet"
        assert psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE
        assert ProcessRecord.of(process.pid) is None


def test_what_is_left_of_a_session_is_signalled(tmp_path: Path) -> None:
    log = tmp_path / "log"
    leader = launch([sys.executable, "-c", LEAVES_A_CHILD], log, tmp_path / "leader.pid")
    assert leader.wait(30)
    child = psutil.Process(int(log.read_text()))
    assert is_alive(child)
    leader.send_group(signal.SIGKILL)
    psutil.wait_procs([child], timeout=30)
    assert not is_alive(child)
    assert is_alive(psutil.Process())
