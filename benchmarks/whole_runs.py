"""``make bench``: whole runs, from their start to the verified watermark, as a user starts them.

On two brokers of this machine: 1,000 records and an idle run from the terminal and with Airflow; RECORDS (default
1,000,000) of 1 KiB with each copy engine, beside MirrorMaker 2 from its start to its last record; and 1,000 partitions
with 100 records each.
Seconds are of the wall clock, CPU seconds those of all processes of the run; the brokers are not counted. With Airflow
they are those of all its processes meanwhile, its scheduler and its API among them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # re-exported without saying so

from benchmarks import mirrormaker
from benchmarks.throughput import TOPIC, fill, send
from kafka_replication.kafka.engines import ENGINES
from kafka_replication.store import open_store
from stack.airflow_standalone import AirflowSettings, AirflowStandalone
from stack.kafka_cluster import BENCH, KafkaCluster, start_all, stop_all

ROOT = Path(__file__).parents[1]
REPEATS = 3
MANY = 1_000
GIVE_UP = 900.0  # seconds


@dataclass(frozen=True)
class Measured:
    """One run: seconds from its start until its watermarks were stored, until it ended, and what it used."""

    what: str
    verified: float
    ended: float
    cpu: float = 0.0
    peak_mb: float = 0.0  # of its largest process
    worker_mb: float = 0.0  # of its largest process that is no JVM
    threads: int = 0  # the most that such a process had


class Usage:
    """What a process and all below it used: the largest resident set of one, and the CPU seconds of all.

    Looked at four times a second; what a process used after the last look is not counted.
    """

    def __init__(self) -> None:
        self.peak_mb, self.worker_mb, self.threads = 0.0, 0.0, 0
        self._cpu: dict[psutil.Process, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @contextmanager
    def watched(self, pid: int) -> Iterator[None]:
        self._pid = pid
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._thread.join()

    @property
    def cpu(self) -> float:
        return sum(self._cpu.values())

    @property
    def measured(self) -> tuple[float, float, float, int]:
        """The last fields of `Measured`."""
        return self.cpu, self.peak_mb, self.worker_mb, self.threads

    def _watch(self) -> None:
        while not self._over.wait(0.25):
            for process in _below(self._pid):
                try:
                    resident = process.memory_info().rss / 1e6
                    self.peak_mb = max(self.peak_mb, resident)
                    if process.name() != "java":
                        self.worker_mb = max(self.worker_mb, resident)
                        self.threads = max(self.threads, process.num_threads())
                    used = process.cpu_times()
                    self._cpu[process] = used.user + used.system
                except psutil.NoSuchProcess:
                    continue


def used_by(pid: int) -> float:
    """CPU seconds of a process and of all below it, also of those that have ended."""
    total = 0.0
    for process in _below(pid):
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])  # its own and those of its ended children, user and system
    return total


def _below(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


@dataclass(frozen=True)
class Stage:
    """Two brokers and a folder."""

    folder: Path
    source: str
    target: str

    @property
    def store_url(self) -> str:
        return f"sqlite:///{self.folder}/store.db"

    def environment(self) -> dict[str, str]:
        connections = {
            f"AIRFLOW_CONN_KAFKA_{name}": json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": address}})
            for name, address in (("SOURCE", self.source), ("TARGET", self.target))
        }
        spark = json.dumps({"conn_type": "spark", "host": "local[2]"})
        return {
            **os.environ,
            **connections,
            "AIRFLOW_CONN_SPARK_DEFAULT": spark,
            "PYTHONPATH": str(ROOT / "plugins"),
            "KAFKA_REPLICATION_STORE_URL": self.store_url,
        }

    def file(self, name: str, topic: str, **more: Any) -> Path:
        file = self.folder / f"{name}.yaml"
        file.write_text(json.dumps(document(name, topic) | more))
        return file

    def watermarks(self, name: str) -> int:
        """The sum of a replication's watermarks."""
        store = open_store(self.store_url)
        try:
            return sum(watermark.offset for watermark in store.watermarks(name).values())
        finally:
            store.close()

    def await_watermarks(self, name: str, records: int, started: float) -> float:
        while self.watermarks(name) < records:
            if time.monotonic() - started > GIVE_UP:
                raise SystemExit(f"{name} has not verified {records} records within {GIVE_UP:.0f} s")
            time.sleep(0.05)
        return time.monotonic() - started

    def terminal(self, what: str, file: Path, records: int) -> Measured:
        """``kafka-replication run``: until the watermarks add up to ``records``, and until it ended."""
        command = [sys.executable, "-m", "kafka_replication.cli", "run", str(file), "--json"]
        started, usage = time.monotonic(), Usage()
        with (self.folder / f"{file.stem}.log").open("w") as log:
            process = subprocess.Popen(command, env=self.environment(), stdout=subprocess.DEVNULL, stderr=log)
            with usage.watched(process.pid):
                verified = self.await_watermarks(file.stem, records, started)
                if process.wait() != 0:
                    raise SystemExit(f"{what} failed: {Path(log.name).read_text()[-2000:]}")
        return Measured(what, verified, time.monotonic() - started, *usage.measured)


def document(name: str, topic: str) -> dict[str, Any]:
    return {
        "name": name,
        "source": {"connection": "kafka_source"},
        "target": {"connection": "kafka_target"},
        "topics": {"include": [topic], "rename": f"{name}.{{topic}}"},
    }


def create(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(120)


def produce(bootstrap: str, topic: str, partitions: int, each: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    send(producer, topic, partitions, ((b"k%d" % number, b"v%d" % number) for number in range(partitions * each)))


def small_runs(stage: Stage) -> Iterator[Measured]:
    """1,000 new records, and nothing new, from the terminal. The first run, which opens partitions, is not counted."""
    create(stage.source, "small", 4)
    file, total = stage.file("small", "small"), 0
    new, idle = [], []
    for repeat in range(REPEATS + 1):
        produce(stage.source, "small", 4, 250)
        total += 1_000
        measured = stage.terminal("1,000 records, terminal", file, total)
        if repeat:
            new.append(measured)
            idle.append(stage.terminal("idle run, terminal", file, total))
    yield middle(new)
    yield middle(idle)


def middle(several: list[Measured]) -> Measured:
    """The medians."""
    return replace(
        several[0],
        verified=median(one.verified for one in several),
        ended=median(one.ended for one in several),
        cpu=median(one.cpu for one in several),
        peak_mb=max(one.peak_mb for one in several),
        worker_mb=max(one.worker_mb for one in several),
        threads=max(one.threads for one in several),
    )


def airflow_run(stage: Stage) -> Measured:
    """From the trigger through Airflow's API to the verified watermark, under a scheduler that runs. The median."""
    dags = stage.folder / "dags"
    (dags / "replications").mkdir(parents=True)
    for file in (ROOT / "dags").glob("*.py"):
        (dags / file.name).write_text(file.read_text())
    (dags / "replications" / "scheduled.yaml").write_text(json.dumps(document("scheduled", "scheduled")))
    create(stage.source, "scheduled", 4)
    airflow = AirflowStandalone(
        stage.folder / "airflow", AirflowSettings(stage.source, stage.target, stage.store_url, dags)
    )
    try:
        airflow.start()
        process, several = airflow.process, []
        assert process is not None
        with airflow.api() as api:
            api.wait_for_dag("scheduled")
            api.unpause("scheduled")
            for repeat in range(REPEATS + 1):
                produce(stage.source, "scheduled", 4, 250)
                started, before = time.monotonic(), used_by(process.pid)
                run_id = api.trigger("scheduled")
                verified = stage.await_watermarks("scheduled", 1_000 * (repeat + 1), started)
                if api.wait_for_run("scheduled", run_id) != "success":
                    raise SystemExit("the DAG run failed")
                ended, cpu = time.monotonic() - started, used_by(process.pid) - before
                if repeat:
                    several.append(Measured("1,000 records, Airflow", verified, ended, cpu))
        return middle(several)
    finally:
        airflow.stop()


def beside_mirrormaker(stage: Stage, records: int) -> Iterator[Measured]:
    """The same topic, in turn, with each copy engine; the last of two turns, as the first warms the brokers up."""
    what, several = f"{records * 1024 / 1e9:.1f} GB", list[tuple[Measured, ...]]()
    for turn in range(2):
        ours = [
            stage.terminal(
                f"{what}, terminal, {engine}", stage.file(f"{engine}{turn}", TOPIC, copy={"engine": engine}), records
            )
            for engine in ENGINES
        ]
        seconds, cpu = mirrormaker.start_to_end(
            stage.folder / f"mm{turn}", stage.source, stage.target, TOPIC, records, f"peer{turn}"
        )
        several.append((*ours, Measured(f"{what}, MirrorMaker 2", seconds, seconds, cpu)))
    yield from several[-1]


def many_partitions(stage: Stage) -> Measured:
    """100 new records in each of many partitions, which an earlier run has opened."""
    create(stage.source, "many", MANY)
    produce(stage.source, "many", MANY, 1)
    file = stage.file("many", "many")
    stage.terminal("opening", file, MANY)
    produce(stage.source, "many", MANY, 100)
    return stage.terminal(f"{MANY:,} partitions with 100 records each, terminal", file, 101 * MANY)


def main() -> None:
    records, only = int(os.environ.get("RECORDS", "1000000")), os.environ.get("BENCH_ONLY", "")
    os.environ[BENCH] = "1"  # brokers as production has them
    folder = Path(tempfile.mkdtemp(prefix="kr-bench-"))
    clusters = KafkaCluster("source", folder), KafkaCluster("target", folder)
    try:
        start_all(clusters)
        stage = Stage(folder, *(cluster.bootstrap for cluster in clusters))
        if not only or "small" in only:
            for measured in small_runs(stage):
                show(measured)
        if not only or "airflow" in only:
            show(airflow_run(stage))
        if not only or "big" in only:
            fill(stage.source, records)
            *ours, peer = beside_mirrormaker(stage, records)
            show(peer)
            for engine, own in zip(ENGINES, ours, strict=True):
                show(own)
                ratio = round(own.verified / peer.verified, 2)
                print(json.dumps({"what": f"{engine} engine / MirrorMaker 2", "seconds": ratio}))
        if not only or "many" in only:
            show(many_partitions(stage))
    finally:
        stop_all(clusters)
        shutil.rmtree(folder, ignore_errors=True)


def show(measured: Measured) -> None:
    rounded = {name: round(value, 1) if isinstance(value, float) else value for name, value in asdict(measured).items()}
    print(json.dumps(rounded), flush=True)


if __name__ == "__main__":
    main()
