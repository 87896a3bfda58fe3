"""A run on real Spark, as a user starts it, and what kills it piece by piece."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from kafka_replication.runtime.failpoints import VARIABLE
from tests.support.processes import command, is_alive, is_driver, is_worker
from tests.support.scenario import Scenario
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]


@dataclass
class SparkRun:
    """A run in its own process group, and the processes below it, found by descent alone."""

    scene: Scenario
    halted: bool = False  # its workers stop inside their third chunk, until `go_on`
    installed: Path | None = None  # the folder of an installation's programs; None: the working copy

    def command(self) -> list[str]:
        config = json.dumps(self.scene.document())
        if self.installed is None:
            sides = [self.scene.source.bootstrap, self.scene.target.bootstrap]
            arguments = [*sides, self.scene.store_url, config, json.dumps(self.scene.client)]
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
        while not self._stop.wait(1):  # a look takes 20 ms of a processor
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
        """The Python program of Spark's driver."""
        return next(filter(is_driver, self.descendants()))

    def workers(self) -> list[psutil.Process]:
        """The Python daemon's children: they copy."""
        return list(filter(is_worker, self.descendants()))

    def await_reached(self, reached: Callable[[], bool]) -> None:
        """Until the run has come so far; it may not end before."""

        def is_reached() -> bool:
            assert self.process.poll() is None, f"the run ended before that: {self.scene.folder / 'stderr'}"
            return reached()

        wait_until(is_reached)

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


KILLS = [kill_workers, kill_only_the_run, kill_jvm, kill_driver, kill_run]


def end_after(run: SparkRun, kill: Callable[[SparkRun], None]) -> None:
    """Kill, let what is left go on, and wait until nothing is.

    A worker's death is healed by Spark's next attempt; without its driver the run fails.
    """
    run.descendants()  # whom it has now: who outlives it is found below
    kill(run)
    run.go_on()
    report = run.end()
    run.assert_nothing_left()
    if kill is kill_workers:
        assert report["outcome"] == "done", report
