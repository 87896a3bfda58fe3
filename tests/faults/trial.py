"""One run of one fault row: its names, its processes, healing by running again, and the verdict."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from kafka_replication.model.offsets import PartitionKey, TopicPartition
from kafka_replication.runtime import failpoints
from kafka_replication.runtime.failpoints import VARIABLE
from tests.faults import profiles
from tests.faults.attempt import ATTEMPT_SECONDS, Attempt
from tests.faults.bench import Bench, Elsewhere, Side
from tests.faults.load import Load
from tests.faults.sampler import LEDGER, Sampler, watermarks
from tests.support.checker import high_watermark
from tests.support.processes import command, is_alive

ROOT = Path(__file__).parents[2]
ATTEMPTS = 20
HEAL_SECONDS = 240.0
# Bytes a second: half a megabyte is copied in most of a minute.
SLOWLY = 10_000 * profiles.current().longer
NEARLY_ALL = 20  # chunks of some 30 that each of two workers copies
MARK = "FAULT_TRIAL"
CHUNK = 40 * profiles.current().longer  # records: a range of some 400 takes about ten chunks


class TrialFailed(Exception):
    """The harness could not do the fault, or the product did not do what the row expects."""


class Trial:
    """A fresh replication of a load. ``dice`` decides every random moment, so that the seed replays it."""

    def __init__(self, bench: Bench, load: Load, name: str, seed: str, folder: Path) -> None:
        self.bench, self.load, self.seed, self.folder = bench, load, seed, folder
        self.dice = random.Random(seed)
        self.name = name
        self.target_topic, self.quarantine_topic = f"{name}.{load.topic}", f"kafka-replication.quarantine.{name}"
        self.copy: dict[str, Any] = {
            "chunk_records": CHUNK,
            "transaction_timeout": 10,
            "stall_timeout": 20,
            **profiles.current().copy,
        }
        self.settings: dict[str, Any] = dict(profiles.current().settings)
        self.job: dict[str, Any] = {}
        self.clients: dict[str, Any] = {}
        self.limits: dict[int, int] = {}  # partition -> offset of the damage, which no watermark may pass
        self.attempts: list[Attempt] = []
        self.began = time.monotonic()
        self.notes: list[str] = []
        self.hit: float | None = None  # when the fault came, and when a run said after it that all was done
        self.healed: float | None = None
        self.stood_still = False  # whether a run did, so that it may have sent something after another one had counted
        self._forgiven: set[int] = set()
        self.store.parent.mkdir(parents=True, exist_ok=True)

    @property
    def store(self) -> Path:
        return self.folder / "store" / "store.db"

    @property
    def spread(self) -> bool:
        """Whether records of a source partition may lie in several target partitions, or beside those of others."""
        return "partitioning" in self.settings

    def note(self, what: str) -> None:
        """Say in the trial's folder what was done to whom, and when."""
        self.notes.append(f"{time.monotonic() - self.began:8.3f} {what}")
        (self.folder / "notes").write_text("\n".join(self.notes) + "\n")

    def key(self, partition: int) -> PartitionKey:
        return PartitionKey(self.name, TopicPartition(self.load.topic, partition), self.target_topic)

    def document(self, **more: Any) -> dict[str, Any]:
        return {
            "name": self.name,
            "source": {"connection": "source"},
            "target": {
                "connection": "target",
                **(self.bench.elsewhere.target if self.bench.elsewhere else {}),
                **profiles.current().target,
            },
            "topics": {"include": [self.load.topic], "rename": f"{self.name}.{{topic}}"},
            "copy": self.copy,
            **self.settings,
            **more,
        }

    def start(self, failpoint: str = "", *, store: Path | None = None, **more: Any) -> Attempt:
        """Start a run; ``more`` goes into its replication file."""
        number = len(self.attempts) + 1
        settings = {
            "config": self.document(**more),
            "store_url": f"sqlite:///{store or self.store}",
            "clients": {name: side.connection(self.clients) for name, side in self._sides().items()},
            **self.job,
        }
        file = self.folder / f"job{number}.json"
        file.write_text(json.dumps(settings))
        environment = {
            **os.environ,
            MARK: str(self.folder),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONPATH": f"{ROOT}/plugins:{ROOT}",
            **({VARIABLE: failpoint} if failpoint else {}),
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.process", str(file)],
            cwd=ROOT,
            env=environment,
            text=True,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.attempts.append(Attempt(number, process, self.folder / f"run{number}.log"))
        self.note(f"run {number} started{' with failpoint ' + failpoint if failpoint else ''}")
        return self.attempts[-1]

    def _sides(self) -> dict[str, Side | Elsewhere]:
        return {"source": self.bench.source, "target": self.bench.copied_to}

    def middle(self, attempt: Attempt, most: int = 30) -> None:
        """Wait for a random moment in the middle of the copy: some chunks, and a part of one more."""
        chunks = self.dice.randrange(1, most)
        if not attempt.await_chunks(chunks):
            raise TrialFailed(
                f"run {attempt.number} ended before it had committed {chunks} chunks: {attempt.end()} {attempt.errors}"
            )
        time.sleep(self.dice.random() * 0.1)  # the dice choose the moment: nothing is waited for here
        self.hit = time.monotonic()

    def middle_by_target(self, attempt: Attempt) -> None:
        """The same where the chunks are logged elsewhere: wait until so many records lie on the target."""
        wanted, deadline = self.dice.randrange(1, self.load.count // 2), time.monotonic() + ATTEMPT_SECONDS
        while self.bench.copied_to.size(self.target_topic) < wanted:
            if attempt.ended or time.monotonic() > deadline:
                raise TrialFailed(
                    f"run {attempt.number} ended before it had copied {wanted} records: {attempt.end()} {attempt.errors}"
                )
            time.sleep(0.2)
        self.hit = time.monotonic()

    def survives_restarts(self, side: Side) -> None:
        """The brokers of one side are restarted one after the other, as for an upgrade: the run at work gets done.

        It copies slowly meanwhile. On a machine that is slower still, its workers wait with what is left.
        """
        self.copy["throughput_limit"], gate = SLOWLY, self.folder / "gate"
        gate.touch()
        run = self.start(f"P3:{NEARLY_ALL}={gate}")
        self.middle(run, most=10)
        for broker in side.brokers:
            if run.ended:
                raise TrialFailed(f"run {run.number} was over before {broker} was restarted")
            self.note(f"restarting {broker}")
            broker.stop()
            broker.start()
            side.heal()
        gate.unlink()
        if self.finish(run) != "done":
            raise TrialFailed(f"a run did not get over a rolling restart: {run.errors}")

    def sleeper(self, most: int = 30) -> Attempt:
        """A run that was started and stands still in the middle of its copy, until SIGCONT."""
        attempt = self.start()
        self.middle(attempt, most)
        self.freeze(attempt)
        self.note(f"froze run {attempt.number} after {attempt.chunks} chunks")
        return attempt

    def at_gate(self, point: str, most: int) -> tuple[Attempt, Path]:
        """A run that halts when it reaches a failpoint for a random time, for as long as the file exists."""
        gate, turn = self.folder / "gate", self.dice.choice([1, self.dice.randrange(2, most)])
        gate.touch()
        attempt, reached = self.start(f"{point}:{turn}={gate}"), failpoints.at_gate(gate)
        deadline = time.monotonic() + ATTEMPT_SECONDS
        while not reached.exists():
            if attempt.ended or time.monotonic() > deadline:
                raise TrialFailed(f"{point} was not reached {turn} times: {attempt.end()} {attempt.errors}")
            time.sleep(0.02)
        self.note(f"run {attempt.number} halts at {point} of turn {turn}")
        return attempt, gate

    def freeze(self, attempt: Attempt) -> None:
        """Stop a run, but not while it writes to the store: SQLite's file would stay locked for as long as the run stands still."""
        deadline = time.monotonic() + ATTEMPT_SECONDS
        while True:
            attempt.kill(signal.SIGSTOP)
            self.stood_still = True
            if self._store_is_free():
                return
            attempt.kill(signal.SIGCONT)
            if time.monotonic() > deadline:
                raise TrialFailed(f"the store was locked whenever run {attempt.number} was stopped")
            time.sleep(self.dice.random() * 0.1)  # the dice choose the next moment

    def _store_is_free(self) -> bool:
        with contextlib.closing(sqlite3.connect(self.store, timeout=0.5, isolation_level=None)) as other:
            try:
                other.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
            return True

    def finish(self, attempt: Attempt) -> str:
        """Wait for a run's end and note what came of it."""
        outcome = attempt.end()
        self.note(f"run {attempt.number}: {outcome} {attempt.errors}")
        if outcome in ("hung", "crashed"):
            raise TrialFailed(f"run {attempt.number} {outcome}; the end of its log: {attempt.text[-600:]}")
        if outcome in ("done", "nothing_to_do") and self.healed is None:
            self.healed = time.monotonic()
        return outcome

    def part(self, span: int) -> None:
        """A run that copies only so many offsets of each partition, without a fault."""
        self._good(self.start(max_records_per_run=span))

    def whole(self, copied: int | None = None) -> None:
        """A run that has to succeed, and to copy so many records where that is given."""
        run = self._good(self.start())
        found = sum(each["copied"] for each in (run.result or {}).get("ranges", ()))
        if copied is not None and found != copied:
            raise TrialFailed(f"run {run.number} copied {found} records, not {copied}")

    def _good(self, run: Attempt) -> Attempt:
        if self.finish(run) not in ("done", "nothing_to_do"):
            raise TrialFailed(f"run {run.number}, without a fault: {run.errors}")
        self.hit, self.healed = time.monotonic(), None
        return run

    def forgive(self, run: Attempt) -> None:
        """This run had every reason to say that running again cannot help: a hand did."""
        self._forgiven.add(run.number)

    def audited(self) -> defaultdict[int, Counter[str]]:
        """What an audit counts of each partition. Raises TrialFailed."""
        self.job["audit"] = True
        run = self.start()
        if self.finish(run) != "audited" or run.result is None:
            raise TrialFailed(f"the audit ended with {run.errors}")
        return defaultdict(Counter, {int(key): Counter(counts) for key, counts in run.result["counted"].items()})

    @contextlib.contextmanager
    def sampled(self) -> Iterator[Sampler]:
        target = self.bench.target.direct.bootstrap
        sampler = Sampler(target, self.store, self.name, self.target_topic, self.load, spread=profiles.current().spread)
        ledger = self.bench.target.admin.list_topics(timeout=30).topics.get(LEDGER)
        if ledger is not None:
            sampler.skip({partition: high_watermark(target, LEDGER, partition) for partition in ledger.partitions})
        with sampler:
            yield sampler

    def heal(self, seconds: float = HEAL_SECONDS) -> None:
        """Run again, and nothing else, until a run says that all is done. Raises TrialFailed."""
        deadline = time.monotonic() + seconds
        while len(self.attempts) < ATTEMPTS:
            attempt = self.start()
            if self.finish(attempt) in ("done", "nothing_to_do"):
                return
            if final := self.final_errors():
                raise TrialFailed(f"a run said that running again cannot help: {final[0]}")
            if time.monotonic() > deadline:
                break
            time.sleep(0.5)  # a scheduler would wait longer
        raise TrialFailed(f"not healed by {len(self.attempts)} runs: {self.attempts[-1].errors}")

    def final_errors(self) -> list[str]:
        """Errors which said that running again cannot help."""
        return [
            error
            for attempt in self.attempts
            if attempt.result and attempt.number not in self._forgiven
            for error in attempt.result["final"]
        ]

    def watermarks(self) -> dict[int, int]:
        return watermarks(self.store, self.name)

    def _descendants(self) -> list[psutil.Process]:
        """Every process of this trial, however far from its run: all have inherited its mark. Another session on this
        machine may have a trial of the same name, but not in the same folder.
        """
        found = []
        for each in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if each.environ().get(MARK) == str(self.folder) and each.status() != psutil.STATUS_ZOMBIE:
                    found.append(each)
        return found

    def leftovers(self, seconds: float = 20.0) -> list[str]:
        """Processes that outlived their run by so long; they are ended."""
        deadline = time.monotonic() + seconds
        while (left := self._descendants()) and time.monotonic() < deadline:
            time.sleep(0.2)
        names = [command(each)[:200] for each in left if is_alive(each)]
        for each in left:
            with contextlib.suppress(psutil.Error):
                each.kill()
        return names
