"""In local mode Spark's Python processes give their places to processes that have loaded their modules before."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from kafka_replication.spark import local, preloaded, submit
from kafka_replication.spark.start import DRIVER_PLACE, KILLED
from kafka_replication.spark.workspace import Workspace, workspace
from tests.support.processes import is_alive
from tests.support.waiting import wait_until

# Spark starts one of these: it says what became of its place.
GIVES = """
import os, resource, sys
from pathlib import Path
from kafka_replication.spark.start import give_place, prefer_linked
prefer_linked()
resource.setrlimit(resource.RLIMIT_NOFILE, (123, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
os.umask(0o77)
os.chdir("/")
print("given", give_place(Path(sys.argv[1])), flush=True)
"""
# In place of the driver: it says what it is, and goes on until it is told to end.
DRIVER = """
import os, resource, sys
def main(parent):
    print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], os.umask(0), os.getcwd(), end=" ")
    print(os.getpid(), parent, sys.argv[-1], os.environ["SPARK_ONLY_HERE"], sys.argv[0], flush=True)
    sys.stdin.readline()
    {end}
"""
# Python runs this first.
WITH_DRIVER = """
import sys, types
import kafka_replication.spark as spark
spark.driver = sys.modules["kafka_replication.spark.driver"] = types.ModuleType("driver")
exec({driver!r}, spark.driver.__dict__)
"""
Variables = Mapping[str, str]


@contextmanager
def places(end: str = "") -> Iterator[tuple[Workspace, Variables]]:
    """The folder of a launcher whose driver is the one above, and the environment of its processes."""
    with workspace() as here:
        submit.package_for("local[2]", here)
        own = here.folder / "own"
        own.mkdir()
        (own / "sitecustomize.py").write_text(WITH_DRIVER.format(driver=DRIVER.format(end=end)))
        variables = submit.environment("local[2]", here)
        variables["PYTHONPATH"] += os.pathsep + str(own)
        with preloaded.waiting(here.folder, variables):
            yield here, {**variables, "PYTHONUNBUFFERED": "YES", "SPARK_ONLY_HERE": "yes"}


def started(variables: Variables, *program: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, *program]
    return subprocess.Popen(command, env=dict(variables), stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def giving(at: Path, variables: Variables) -> subprocess.Popen[bytes]:
    return started(variables, "-c", GIVES, str(at), "argument")


def said(process: subprocess.Popen[bytes]) -> list[str]:
    assert process.stdout is not None
    return process.stdout.readline().decode().split()


ENDS = [("", 0), ("raise SystemExit(3)", 3), ("raise ValueError", 1), ("os._exit(0)", 137)]


@pytest.mark.parametrize(("end", "code"), ENDS)
def test_the_driver_goes_on_in_the_process_that_waits(
    end: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has all that Spark gave to the other one, and tells its exit code to it, if it can."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "subprocess.py").write_text("open('imported', 'w')")
    with places(end) as (here, variables):
        process = giving(here.folder / DRIVER_PLACE, variables)
        limit, mask, folder, pid, *rest = said(process)
        assert int(pid) != process.pid
        assert (limit, int(mask), folder) == ("123", 0o77, "/")
        assert not (tmp_path / "imported").exists(), "the folder in which a run is called is no place for modules"
        assert rest == [str(os.getpid()), "argument", "yes", "-c"]
        [forked] = psutil.Process(int(pid)).children()
        out, _ = process.communicate(b"go on\n")
        assert out.decode().split() == ["given", str(code)]
    assert code == KILLED or not psutil.pid_exists(forked.pid), "the driver waits for it"


@pytest.mark.parametrize("which", ["the one that gave its place", "the one that has it"])
def test_if_one_of_both_is_killed_the_other_ends(which: str) -> None:
    with places() as (here, variables):
        process = giving(here.folder / DRIVER_PLACE, variables)
        driver = psutil.Process(int(said(process)[3]))
        if which == "the one that has it":
            driver.kill()
            assert said(process) == ["given", "137"], "as Spark would say it of its own"
        else:
            process.kill()
            wait_until(lambda: not is_alive(driver))
        process.communicate()


def test_both_processes_end_with_the_launcher_if_spark_never_starts() -> None:
    before = set(psutil.Process().children())
    with places():
        [waiting] = set(psutil.Process().children()) - before
        wait_until(lambda: len(waiting.children()) == 1)
        both = [waiting, *waiting.children()]
    wait_until(lambda: not any(map(is_alive, both)))


@pytest.mark.parametrize(
    "other",
    [{"MALLOC_ARENA_MAX": "3"}, {"TZ": "Asia/Tokyo"}, {"PYTHONPATH": str(Path(__file__).parents[2] / "plugins")}],
)
def test_a_place_is_given_only_to_the_same_python(other: Variables) -> None:
    with places() as (here, variables):
        process = giving(here.folder / DRIVER_PLACE, {**variables, **other})
        assert said(process) == ["given", "None"]
        process.communicate()
        process = giving(here.folder / "nobody.place", variables)
        assert said(process) == ["given", "None"]
        process.communicate()


def listens(connection: Any, port: int) -> bool:
    return bool(connection.laddr.port == port and connection.status == psutil.CONN_LISTEN)


@pytest.mark.parametrize("more", [{}, {"PYTHONHASHSEED": "1"}], ids=["in its place", "by itself"])
def test_the_daemon_answers_spark_and_ends_when_spark_closes_its_input(more: Variables) -> None:
    """Spark reads the port at which workers are asked for from what the daemon prints."""
    with places() as (_, variables):
        process = started({**variables, **more}, "-m", local.DAEMON, "pyspark.worker")
        assert process.stdin is not None and process.stdout is not None
        [port] = struct.unpack(">i", process.stdout.read(4))
        [daemon] = [psutil.Process(each.pid) for each in psutil.net_connections("tcp4") if listens(each, port)]
        assert (daemon.pid == process.pid) == bool(more)
        process.stdin.close()
        process.wait()
        wait_until(lambda: not is_alive(daemon))
        process.stdout.close()
