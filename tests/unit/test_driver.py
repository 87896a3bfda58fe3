"""A Spark driver ends with the process that submitted it, and signals nobody but its own JVM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from tenacity import Retrying, retry_if_result, wait_fixed

from kafka_replication.runtime.identity import IDENTITY, ProcessIdentity
from tests.support.processes import is_alive

PLUGINS = Path(__file__).parents[2] / "plugins"
# What the driver does before Spark starts, and while it works.
DRIVER = """
import os, threading
from kafka_replication.spark import driver
from kafka_replication.spark.channel import DriverSide
parent, launcher, jobs = driver.watch_jvm(os.getppid()), DriverSide(os.environ["SOCKET"]), driver.Jobs()
threading.Thread(target=driver._take, args=(launcher, jobs, parent), daemon=True).start()
print("ready", flush=True)
jobs.get(timeout=600)  # nobody sends a job
"""
# The process that submits: its launcher has accepted the driver's connection.
SUBMITTER = """
import sys
from contextlib import closing
from pathlib import Path
from kafka_replication.spark.channel import Listener
with closing(Listener(Path(sys.argv[1]))) as listening:
    print("ready", flush=True)
    launcher = listening.accept(lambda: False)
input()
"""
# Starts the driver as its child, as the JVM of spark-submit does, and tells the driver's pid.
JVM = """
import subprocess, sys
driver = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
driver.stdout.readline()
print(driver.pid, flush=True)
driver.wait()
"""
# Adopts what its descendants leave behind, as process 1 of a container does; tells every SIGTERM.
ADOPTER = """
import ctypes, signal, subprocess, sys
if sys.platform == "linux":  # elsewhere process 1 adopts, which no test can look at
    assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER
signal.signal(signal.SIGTERM, lambda *_: print("signalled", flush=True))
jvm = subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]], stdout=subprocess.PIPE, text=True)
print(jvm.pid, jvm.stdout.readline().strip(), flush=True)
while (line := sys.stdin.readline()) != "end\\n":
    pass
"""


Start = Callable[..., subprocess.Popen[str]]


def await_end(process: psutil.Process) -> None:
    """A process that somebody else started; who adopted it may leave it as a zombie."""
    Retrying(retry=retry_if_result(bool), wait=wait_fixed(0.05))(lambda: is_alive(process))


def environment(socket: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(PLUGINS), "SOCKET": str(socket)}


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts Python programs; whatever of them still runs is killed after the test."""
    with ExitStack() as stack:

        def started(program: str, *arguments: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-c", program, *arguments],
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield started


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_a_process_is_alive_until_it_ended(start: Start) -> None:
    process = start("input()")
    known = ProcessIdentity.of(process.pid)
    assert known.is_alive()
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # ended, and a zombie until its parent looks
    assert not known.is_alive()
    process.wait()
    assert not known.is_alive()


def test_another_process_with_its_pid_is_not_it() -> None:
    mine = ProcessIdentity.own()
    assert mine.is_alive()
    assert not ProcessIdentity(mine.host, mine.pid, mine.started - 10).is_alive()


def test_nothing_of_it_reads_proc_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS has no /proc; psutil knows where to look on each system."""
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: (_ for _ in ()).throw(FileNotFoundError))
    assert ProcessIdentity.own().is_alive()


def test_it_travels_as_text() -> None:
    assert IDENTITY.validate_json(IDENTITY.dump_json(ProcessIdentity.own())) == ProcessIdentity.own()


@pytest.fixture
def socket() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kr-") as folder:
        yield Path(folder) / "socket"


def submitting(start: Start, socket: Path) -> subprocess.Popen[str]:
    submitter = start(SUBMITTER, str(socket), env=environment(socket))
    assert line(submitter) == "ready\n"
    return submitter


def test_a_driver_ends_its_jvm_and_itself_when_the_submitter_is_gone(start: Start, socket: Path) -> None:
    submitter = submitting(start, socket)
    jvm = start(JVM, DRIVER, env=environment(socket))
    driver = psutil.Process(int(line(jvm)))
    assert is_alive(driver) and jvm.poll() is None
    submitter.kill()
    submitter.wait()
    assert jvm.wait() == -signal.SIGTERM
    await_end(driver)


@pytest.mark.parametrize("dies_first", ["jvm", "submitter"])
def test_a_driver_that_was_adopted_signals_nobody(start: Start, socket: Path, dies_first: str) -> None:
    """The JVM is killed for memory: whoever adopts the driver then is not to be ended, neither now nor later."""
    submitter = submitting(start, socket)
    adopter = start(ADOPTER, JVM, DRIVER, env=environment(socket))
    jvm, driver = (psutil.Process(int(pid)) for pid in line(adopter).split())
    victims = [jvm, psutil.Process(submitter.pid)]
    for victim in victims if dies_first == "jvm" else reversed(victims):
        victim.kill()
    await_end(driver)
    said, _ = adopter.communicate("end\n")
    assert said == "" and adopter.returncode == 0
