"""The product in a drill, as a person calls it: commands of the command line, and runs one after the other."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stack.artifacts import kafka_jars
from stack.drill_work import GROUPS, TOPICS
from stack.folders import REPOSITORY
from stack.java import java

SECONDS = 240  # a command that needs longer hangs
TRIES = 6
LONG = {"cutover": 16, "failover": 2.5, "failback": 20, "run": 2.5}  # seconds in which each one may be killed
HANGING = re.compile(r"kafka-transactions.sh \S+ <cluster> (abort --topic \S+ --partition \d+ --start-offset \d+)")
FORWARD, BACK = "drill-forward", "drill-back"


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """One command that has ended. ``code`` is negative for one that was killed."""

    name: str
    files: Sequence[str]
    code: int
    document: Mapping[str, Any]
    error: str
    seconds: float

    @property
    def why(self) -> str:
        """The reason why it did not do all, on one line."""
        told = self.document
        blocked = [f"{row['step']}: {row['what']}" for row in told.get("steps", ()) if row["state"] == "blocked"]
        for row in (*told.get("ranges", ()), *told.get("partitions", ())):
            blocked += [f"{row['topic']}-{row['partition']}: {row['error']}"] if row.get("error") else []
        for group in told.get("groups", ()):
            if group["state"] in ("failed", "active"):
                blocked.append(f"group {group['group']}: {group['why'] or [one['why'] for one in group['partitions']]}")
        said = [line for line in self.error.splitlines() if " INFO " not in line and not line.startswith("store: ")]
        return " ".join((blocked or [" ".join(said[1:3])])[0].split())[:400]


@dataclass(kw_only=True)
class Calls:
    """Calls commands with the connections of both sides, and keeps what they print below ``folder``."""

    folder: Path
    a: str
    b: str
    chance: random.Random
    say: Callable[[str], None]
    alive: set[int] = field(default_factory=set)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, source, target in ((FORWARD, "a", "b"), (BACK, "b", "a")):
            file = {
                "name": name,
                "source": {"connection": f"drill_{source}"},
                "target": {"connection": f"drill_{target}"},
                "topics": {"include": [*TOPICS]},
                "groups": {"include": [*GROUPS]},
            }
            self.file(name).write_text(json.dumps(file, indent=2) + "\n")  # which is YAML, too

    def file(self, name: str) -> Path:
        return self.folder / f"{name}.yaml"

    @property
    def environment(self) -> Mapping[str, str]:
        sides = {"A": self.a, "B": self.b}
        connections = {
            f"AIRFLOW_CONN_DRILL_{name}": json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": bootstrap}})
            for name, bootstrap in sides.items()
        }
        path = os.pathsep.join([str(REPOSITORY / "plugins"), *filter(None, [os.environ.get("PYTHONPATH")])])
        store = f"sqlite:///{self.folder / 'store.db'}"
        return {**os.environ, **connections, "KAFKA_REPLICATION_STORE_URL": store, "PYTHONPATH": path}

    def call(self, name: str, *files: str, wishes: Sequence[str] = (), kill_after: float | None = None) -> Called:
        """Call a command; SIGKILL it after so many seconds, if it has not ended then."""
        stem = self.folder / f"{next(self._numbers):03}-{name}-{files[0]}"
        command = [str(Path(sys.executable).with_name("kafka-replication")), name]
        command += [*(str(self.file(file)) for file in files), *wishes, "--json"]
        began = time.monotonic()
        with stem.with_suffix(".json").open("w") as out, stem.with_suffix(".err").open("w") as err:
            err.write(f"{' '.join(command[1:])}\n")
            err.flush()
            process = subprocess.Popen(command, stdout=out, stderr=err, env=self.environment, start_new_session=True)
            self.alive.add(process.pid)
            try:
                process.wait(SECONDS if kill_after is None else kill_after)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            finally:
                end_session(process.pid)
                self.alive.discard(process.pid)
        seconds, text = time.monotonic() - began, stem.with_suffix(".json").read_text()
        try:
            document = json.loads(text)
        except ValueError:
            document = {}
        error = stem.with_suffix(".err").read_text()
        return Called(name=name, files=files, code=process.returncode, document=document, error=error, seconds=seconds)

    def until_done(self, name: str, *files: str, wishes: Sequence[str]) -> tuple[Called, int]:
        """Call a command until it says that all is done. Some calls are killed. With the number of calls."""
        called, number = None, 0
        while called is None or (called.code and number < TRIES):
            number += 1
            kill_after = self.chance.uniform(0.7, LONG[name]) if number <= 3 and self.chance.random() < 0.4 else None
            called = self.call(name, *files, wishes=wishes, kill_after=kill_after)
            how = {0: "done"}.get(called.code, f"killed after {kill_after:.1f} s" if kill_after else called.why)
            self.say(f"  {name}, call {number}, {called.seconds:.1f} s: {how}")
            for words in HANGING.findall(json.dumps(called.document)):
                self._abort(words.split())
        return called, number

    def _abort(self, words: Sequence[str]) -> None:
        """End a transaction of a producer that was killed with its broker, by the command that the text names."""
        self.say(f"  kafka-transactions.sh {' '.join(words)}")
        tool = [java(), "-Xmx128m", "-cp", f"{kafka_jars()}/*", "org.apache.kafka.tools.TransactionsCommand"]
        for bootstrap in (self.a, self.b):  # it begins at this offset on one of them
            command = [*tool, "--bootstrap-server", bootstrap, *words]
            subprocess.run(command, capture_output=True, check=False, timeout=SECONDS)

    def end(self) -> None:
        for pid in list(self.alive):
            end_session(pid)


def end_session(pid: int) -> None:
    """Kill what is left of a session that this process led."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


@dataclass(kw_only=True)
class Runs:
    """Runs of the forward direction, one after the other, as a schedule would start them. Some are killed."""

    calls: Calls
    chance: random.Random
    failed: list[tuple[float, float, Called]] = field(default_factory=list)  # with their begin and their end
    began: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    both: threading.Event = field(default_factory=threading.Event)  # the other direction, too: it was opened once
    count: int = 0
    thread: threading.Thread | None = None

    def start(self) -> Runs:
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()
        return self

    def stop(self) -> None:
        self.over.set()
        if self.thread:
            self.thread.join()

    def await_one(self, seconds: float = 120) -> None:
        """Return when the next run begins."""
        self.began.clear()
        self.began.wait(seconds)

    def _work(self) -> None:
        while not self.over.is_set():
            for name in (FORWARD, BACK) if self.both.is_set() else (FORWARD,):
                self.began.set()
                began = time.monotonic()
                kill_after = self.chance.uniform(0.8, 3) if self.chance.random() < 0.15 else None
                called = self.calls.call("run", name, kill_after=kill_after)
                self.count += 1
                if called.code > 0:
                    self.failed.append((began, time.monotonic(), called))
            self.over.wait(0.5)
