"""``python -m benchmarks.time_to_alert [--stalled-after SECONDS] [CASE ...]``: how long after a fault a person is told.

Real brokers, real Spark, the command line as a user calls it, and ``kafka-replication watch`` beside it, as a service
would run it. The alerts arrive at a real SMTP server and a real HTTP server on the loopback. For each case it prints
the seconds from the fault to the arrival of the alert by mail and by webhook, from the mending of the fault to the
arrival of the message that it healed, and how many messages there were. Fails if an alert took longer than
``stalled_after`` + 120 s, or if there was not exactly one of each.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # re-exported without saying so

from benchmarks.throughput import TOPIC, send
from kafka_replication.ledger.entries import POSITIONS, RECEIPTS
from kafka_replication.model.keys import LEDGER_PARTITIONS
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.store import open_store
from stack.kafka_cluster import KafkaCluster, start_all, stop_all
from tests.support.received import Inbox, inbox
from tests.support.scenario import Cluster

NAME = "time-to-alert"
PARTITIONS = 20
RECORDS = 100_000
ALLOWED = 120.0
PATIENCE = 1800.0
LEDGER = (POSITIONS, RECEIPTS)


@dataclass
class Bench:
    """One replication, its clusters, its inbox and the processes that this program started."""

    folder: Path
    source: KafkaCluster
    target: KafkaCluster
    received: Inbox
    stalled_after: int
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def store(self) -> Path:
        return self.folder / "store.db"

    @property
    def environment(self) -> dict[str, str]:
        clusters = {"SOURCE": self.source, "TARGET": self.target}
        kafka = {
            f"AIRFLOW_CONN_{name}": json.dumps(
                {"conn_type": "kafka", "extra": {"bootstrap.servers": cluster.bootstrap}}
            )
            for name, cluster in clusters.items()
        }
        own = {
            "AIRFLOW_CONN_ONCALL": self.received.connection,
            "KAFKA_REPLICATION_STORE_URL": f"sqlite:///{self.store}?timeout=5",
            "KAFKA_REPLICATION_STATE_FOLDER": str(self.folder / "state"),
        }
        return {**os.environ, **kafka, **own}

    def file(self) -> Path:
        path = self.folder / f"{NAME}.yaml"
        document = {
            "name": NAME,
            "source": {"connection": "source"},
            "target": {"connection": "target"},
            "topics": {"include": [TOPIC]},
            "alerts": {"apprise": "oncall", "stalled_after": self.stalled_after},
            "spark": {"parallelism": 2},
            "copy": {"chunk_records": 250, "transaction_timeout": 60, "chunk_seconds": 30},
            **self.settings,
        }
        path.write_text(json.dumps(document))
        return path

    def command(self, *arguments: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{arguments[0]}.log").open("ab")
        line = [sys.executable, "-m", "kafka_replication.cli", arguments[0], str(self.file()), *arguments[1:]]
        return subprocess.Popen(line, env=self.environment, stdout=log, stderr=log, start_new_session=True)

    def run(self) -> int:
        """A whole run; its exit code."""
        return self.command("run").wait()

    def run_in_mid_copy(self) -> subprocess.Popen[bytes]:
        """A run that has committed something and has more to do."""
        run = self.command("run")
        await_(lambda: run.poll() is not None or self._copied() > 0, "a first chunk")
        if run.poll() is not None:
            raise SystemExit(f"the run ended before its fault; see {self.folder}/run.log")
        return run

    def _copied(self) -> int:
        store = open_store(f"sqlite:///{self.store}")
        try:
            runs = store.runs(NAME, 1)
            document = json.loads(runs[0].progress or "{}") if runs and runs[0].state == "planned" else {}
            return int(document.get("records", 0))
        finally:
            store.close()


@dataclass(frozen=True)
class Times:
    """Seconds from the fault, and from its mending, to the arrival of the message by mail and by webhook."""

    mail: float
    webhook: float
    healed: float
    alerts: int
    healings: int


def measure(bench: Bench, fault: Callable[[], float], mend: Callable[[], float]) -> Times:
    """``fault`` and ``mend`` return the moment from which to count, on the monotonic clock."""
    mails, posts = bench.received.mails, bench.received.posts
    mails.clear()
    posts.clear()
    with watching(bench):
        since = fault()
        await_(lambda: bool(mails and posts), "an alert")
        first = mails[0].at - since, posts[0].at - since
        mended = mend()
        await_(lambda: any(post.title.startswith("HEALED") for post in posts), "that it healed")
        await_(lambda: len(mails) == len(posts), "the mails")
    healed = next(post.at for post in posts if post.title.startswith("HEALED")) - mended
    healings = sum(post.title.startswith("HEALED") for post in posts)
    return Times(*first, healed=max(0.0, healed), alerts=len(posts) - healings, healings=healings)


@contextmanager
def watching(bench: Bench) -> Iterator[None]:
    watch = bench.command("watch")
    try:
        yield
    finally:
        end(watch)


def fill(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    send(producer, TOPIC, PARTITIONS, ((b"k%08d" % number, b"v" * 100) for number in range(RECORDS)))


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait()


def await_(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {PATIENCE:.0f} s in vain for {what}")
        time.sleep(0.1)


def target_dies_in_mid_copy(bench: Bench) -> Times:
    runs: list[subprocess.Popen[bytes]] = []

    def fault() -> float:
        runs.append(bench.run_in_mid_copy())
        # A lone broker that is killed between a commit and its markers may never write them (docs/reliability.md).
        target = Cluster(bench.target.bootstrap)
        partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        partitions += [TopicPartition(name, number) for name in LEDGER for number in range(LEDGER_PARTITIONS)]
        while not target.is_settled(partitions):
            pass
        bench.target.broker(0).kill()
        return time.monotonic()

    def mend() -> float:
        bench.target.start()
        runs[0].wait()
        bench.run()
        return time.monotonic()

    return measure(bench, fault, mend)


def source_dies_in_planning(bench: Bench) -> Times:
    def fault() -> float:
        bench.source.broker(0).kill()
        since = time.monotonic()
        bench.run()
        return since

    def mend() -> float:
        bench.source.start()
        bench.run()
        return time.monotonic()

    return measure(bench, fault, mend)


def launcher_killed(bench: Bench) -> Times:
    def fault() -> float:
        run = bench.run_in_mid_copy()
        psutil.Process(run.pid).send_signal(signal.SIGKILL)
        run.wait()
        return time.monotonic()

    def mend() -> float:
        bench.run()
        return time.monotonic()

    return measure(bench, fault, mend)


def store_gone(bench: Bench) -> Times:
    """The database's file is moved away, and something else has its name."""
    files = [bench.store.with_name(bench.store.name + suffix) for suffix in ("", "-wal", "-shm")]
    away = bench.folder / "away"

    def fault() -> float:
        away.mkdir(exist_ok=True)
        for file in files:
            if file.exists():
                file.rename(away / file.name)
        bench.store.mkdir()
        return time.monotonic()

    def mend() -> float:
        bench.store.rmdir()
        for file in files:
            file.unlink(missing_ok=True)
            if (away / file.name).exists():
                (away / file.name).rename(file)
        return time.monotonic()

    return measure(bench, fault, mend)


def nobody_starts_runs(bench: Bench) -> Times:
    """A scheduler that stands still, as seen from outside: the schedule is due each minute, and nothing starts."""
    bench.settings["schedule"] = "* * * * *"
    bench.run()

    def fault() -> float:
        return time.monotonic()

    def mend() -> float:
        bench.run()
        return time.monotonic()

    try:
        return measure(bench, fault, mend)
    finally:
        del bench.settings["schedule"]


CASES: dict[str, Callable[[Bench], Times]] = {
    "target-dies-in-mid-copy": target_dies_in_mid_copy,
    "launcher-killed-with-9": launcher_killed,
    "source-dies-in-planning": source_dies_in_planning,
    "store-gone": store_gone,
    "nobody-starts-runs": nobody_starts_runs,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="How long after a fault a person is told.")
    parser.add_argument("--stalled-after", type=int, default=600)
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], metavar="CASE")
    asked = parser.parse_args()
    print(f"stalled_after {asked.stalled_after} s, {PARTITIONS} partitions; seconds")
    print("case                      mail   webhook  healed  alerts  healings", flush=True)
    failed = False
    for name in asked.cases or CASES:
        times = one(name, asked.stalled_after)
        print(
            f"{name:<24} {times.mail:>6.0f}   {times.webhook:>6.0f}   {times.healed:>6.0f}  {times.alerts:>6}"
            f"  {times.healings:>8}",
            flush=True,
        )
        slow = max(times.mail, times.webhook) > asked.stalled_after + ALLOWED or times.healed > ALLOWED
        failed = failed or slow or (times.alerts, times.healings) != (1, 1)
    if failed:
        sys.exit("an alert came late, or there was not exactly one alert and one message that it healed")


def one(name: str, stalled_after: int) -> Times:
    """One case on clusters of its own."""
    folder = Path(tempfile.mkdtemp(prefix="time-to-alert-"))
    source, target = (KafkaCluster(side, folder) for side in ("source", "target"))
    try:
        start_all([source, target])
        fill(source.bootstrap)
        with inbox() as received:
            bench = Bench(folder, source, target, received, stalled_after)
            return CASES[name](bench)
    finally:
        stop_all([source, target])
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
