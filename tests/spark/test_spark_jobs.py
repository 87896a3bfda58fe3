"""Real Spark, started as a user starts it, and killed piece by piece while it copies."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from kafka_replication.runtime.events import Event
from kafka_replication.runtime.failpoints import VARIABLE
from kafka_replication.spark.host.local import DAEMON
from tests.spark.installation import build, files, install
from tests.spark.pythons import python_without
from tests.support.processes import command, is_alive
from tests.support.scenario import Scenario, numbered
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
PARTITIONS, RECORDS = 4, 1_000
SMALL = {"chunk_records": 100}


@dataclass
class SparkRun:
    """A run in its own process group, and the processes below it, found by descent alone."""

    scene: Scenario
    halted: bool = False  # its workers stop inside their third chunk, until `go_on`
    installed: Path | None = None  # the folder of an installation's programs; None: the working copy

    def command(self) -> list[str]:
        config = json.dumps(self.scene.document())
        if self.installed is None:
            arguments = [self.scene.source.bootstrap, self.scene.target.bootstrap, self.scene.store_url, config]
            return [sys.executable, "-m", "tests.support.spark_run_process", *arguments]
        file = self.scene.folder / f"{self.scene.name}.yaml"
        file.write_text(config)
        return [str(self.installed / "kafka-replication"), "run", str(file), "--json"]

    def environment(self) -> dict[str, str]:
        if self.installed is None:
            return {**os.environ, "PYTHONPATH": f"{ROOT}/plugins:{ROOT}"}
        sides = {"SOURCE": self.scene.source, "TARGET": self.scene.target}
        connections = {
            f"AIRFLOW_CONN_{name}": json.dumps(
                {"conn_type": "kafka", "extra": {"bootstrap.servers": cluster.bootstrap}}
            )
            for name, cluster in sides.items()
        }
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return {**inherited, **connections, "KAFKA_REPLICATION_STORE_URL": self.scene.store_url}

    def __post_init__(self) -> None:
        self.gate = self.scene.folder / "gate"
        self.gate.touch()
        failpoint = {VARIABLE: f"P1:3={self.gate}"} if self.halted else {}
        self.errors = (self.scene.folder / "stderr").open("a+")
        self.process = subprocess.Popen(
            self.command(),
            cwd=self.scene.folder if self.installed else ROOT,
            start_new_session=True,
            text=True,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env={**self.environment(), **failpoint},
        )
        self.root = psutil.Process(self.process.pid)
        self.seen: dict[int, psutil.Process] = {}
        self._stop = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def _watch(self) -> None:
        while not self._stop.wait(0.2):
            self.descendants()

    def descendants(self) -> list[psutil.Process]:
        """The living ones; each that was ever seen is remembered, for those that outlive their parent."""
        children: dict[int, list[psutil.Process]] = {}
        for each in psutil.process_iter(["ppid"]):
            children.setdefault(each.info["ppid"], []).append(each)
        parents = [self.root.pid, *self.seen]
        for parent in parents:  # it grows
            found = {each.pid: each for each in children.get(parent, ()) if each.pid not in self.seen}
            self.seen.update(found)
            parents.extend(found)
        return [each for each in list(self.seen.values()) if is_alive(each)]

    def jvm(self) -> psutil.Process:
        return next(each for each in self.descendants() if each.name() == "java")

    def driver(self) -> psutil.Process:
        """The Python program that the JVM of spark-submit started."""
        return next(each for each in self.jvm().children() if "replicate_ranges.py" in command(each))

    def workers(self) -> list[psutil.Process]:
        """The Python daemon's children: they copy."""
        return [each for daemon in self.jvm().children() if is_daemon(daemon) for each in daemon.children()]

    def go_on(self) -> None:
        """Workers that were halted, and those that will be started, copy to the end."""
        self.gate.unlink()

    def end(self) -> dict[str, Any]:
        out, _ = self.process.communicate()
        self.errors.close()
        document = out if self.installed else out.strip().rpartition("\n")[2]
        return json.loads(document) if document else {}

    def assert_nothing_left(self) -> None:
        with contextlib.suppress(AssertionError):  # what is left is named below
            wait_until(lambda: not self.descendants())
        self._stop.set()
        self._watcher.join()
        left = [f"{each.pid} of {each.ppid()}: {command(each)[:200]}" for each in self.descendants()]
        for each in self.descendants():
            each.kill()
        assert not left


def is_daemon(process: psutil.Process) -> bool:
    return DAEMON in command(process)


@pytest.fixture
def ready(scene: Scenario) -> Scenario:
    scene.source.create(scene.topic, PARTITIONS)
    for partition in range(PARTITIONS):
        scene.source.produce(scene.topic, numbered(RECORDS), partition)
    return scene


def await_middle(scene: Scenario, run: SparkRun) -> None:
    """Until a worker is halted inside its third chunk: two are committed, far from all."""

    def is_reached() -> bool:
        assert run.process.poll() is None, f"the run ended before it could be killed: {run.scene.folder / 'stderr'}"
        return scene.target.partitions(scene.topic) > 0 and on_target(scene) > 2 * SMALL["chunk_records"]

    wait_until(is_reached)


def on_target(scene: Scenario) -> int:
    return scene.target.size(scene.topic)


def assert_complete(scene: Scenario) -> None:
    scene.assert_copied(*range(PARTITIONS))
    assert [scene.watermark(partition) for partition in range(PARTITIONS)] == [RECORDS] * PARTITIONS


def test_an_installed_wheel_copies_and_verifies(ready: Scenario) -> None:
    """One run of 4 partitions, where nothing but the wheel is installed; the next one starts no Spark."""
    wheel = build(ready.folder / "wheel")
    assert files() - set(zipfile.ZipFile(wheel).namelist()) == set()
    run = SparkRun(ready, installed=install(wheel, ready.folder / "environment"))
    report = run.end()
    assert report["outcome"] == "done", report
    assert sorted((each["partition"], each["copied"], each["digest_ok"]) for each in report["ranges"]) == [
        (partition, RECORDS, True) for partition in range(PARTITIONS)
    ]
    assert_complete(ready)
    run.assert_nothing_left()
    ready.idle_run()


def kill_workers(run: SparkRun) -> None:
    """One, then every one, also the one that took its place."""
    workers = run.workers()
    workers[0].kill()
    known = {each.pid for each in workers}
    wait_until(lambda: any(each.pid not in known for each in run.workers()))
    for each in run.workers():
        each.kill()


def kill_jvm(run: SparkRun) -> None:
    run.jvm().kill()


def kill_driver(run: SparkRun) -> None:
    run.driver().kill()


def kill_run(run: SparkRun) -> None:
    """Everything at once, as a machine that loses power: the run and all below it."""
    for each in [run.root, *run.descendants()]:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()


def kill_only_the_run(run: SparkRun) -> None:
    """The process that submitted; Spark has to notice by itself."""
    run.process.send_signal(signal.SIGKILL)


SLOW_KILLS = [pytest.param(kill, marks=pytest.mark.slow) for kill in (kill_jvm, kill_driver, kill_run)]


@pytest.mark.parametrize("kill", [kill_workers, kill_only_the_run, *SLOW_KILLS])
def test_kill_while_copying(ready: Scenario, kill: Callable[[SparkRun], None]) -> None:
    ready.settings |= {"copy": SMALL}
    run = SparkRun(ready, halted=True)
    await_middle(ready, run)
    kill(run)
    run.go_on()
    report = run.end()
    run.assert_nothing_left()
    # A worker's death is healed by Spark's next attempt; without its driver the run fails.
    if kill is kill_workers:
        assert report["outcome"] == "done", report
    ready.settings |= {"copy": {}}
    healed = ready.run()
    assert healed.outcome in ("done", "nothing_to_do"), healed.table()
    assert_complete(ready)
    ready.idle_run()


def assert_lean(driver: psutil.Process) -> None:
    """Spark's driver has not loaded what it never needs. Both packages are here, Airflow's providers bring them."""
    loaded = {mapped.path for mapped in driver.memory_maps()}
    assert not [path for path in loaded if "/numpy/" in path or "/pandas/" in path]


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_a_run_that_is_stopped_leaves_no_transaction_open(ready: Scenario, number: signal.Signals) -> None:
    """Whether the run is asked to end or is gone at once: Spark ends, and its workers abort what they have open."""
    ready.settings |= {"copy": SMALL | {"transaction_timeout": 600}}
    run = SparkRun(ready, halted=True)
    await_middle(ready, run)
    assert_lean(run.driver())
    run.process.send_signal(number)
    run.end()
    assert run.process.returncode == (143 if number == signal.SIGTERM else -number)
    run.assert_nothing_left()
    wait_until(lambda: ready.is_settled(*range(PARTITIONS)))
    ready.settings |= {"copy": {}}
    healed = ready.run()
    assert healed.outcome == "done", healed.table()
    assert_complete(ready)


@pytest.mark.slow
def test_java_uses_the_class_data_archive_and_a_run_survives_one_that_was_cut_off(
    ready: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java 17 itself crashes on such an archive. Neither with it nor without does Java print a warning."""
    for name in ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(ready.folder / "cache"))
    subprocess.run([sys.executable, "-m", "kafka_replication.spark.training"], cwd=ROOT / "plugins", check=True)
    (archive,) = (ready.folder / "cache").rglob("*.jsa")
    ready.settings |= {"copy": SMALL}
    run = SparkRun(ready, halted=True)
    await_middle(ready, run)
    if Path("/proc/self/maps").exists():
        assert str(archive) in Path(f"/proc/{run.jvm().pid}/maps").read_text()
    run.go_on()
    assert run.end()["outcome"] == "done"
    run.assert_nothing_left()
    assert_complete(ready)

    os.truncate(archive, archive.stat().st_size // 2)
    ready.source.produce(ready.topic, numbered(10, first=RECORDS), 0)
    again = SparkRun(ready)
    report = again.end()
    again.assert_nothing_left()
    assert report["outcome"] == "done", report
    assert "[warning]" not in (errors := (ready.folder / "stderr").read_text()) and "[error" not in errors


def test_an_executor_without_a_module_ends_the_run(ready: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", str(python_without("xxhash", ready.folder / "executor")))
    run = SparkRun(ready)
    report = run.end()
    run.assert_nothing_left()
    assert report["outcome"] == "failed"
    assert len(report["ranges"]) == PARTITIONS
    for each in report["ranges"]:
        assert "cannot import xxhash" in each["error"], each["error"]
        assert sys.executable in each["error"]
        assert "install requirements.txt" in each["error"] and "PYSPARK_PYTHON" in each["error"]
    assert (ready.folder / "stderr").read_text().count(str(Event.COPY_ROUND_STARTED)) == 1, (
        "no further round can heal this"
    )
