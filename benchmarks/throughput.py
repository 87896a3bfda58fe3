"""``make bench``: copy, and copy + verify, beside MirrorMaker 2, on the same two brokers in the same run.

One topic of 1 KiB records in 4 partitions (RECORDS, default 1,000,000). Ours runs the very functions that a Spark
Python worker runs, with each copy engine, in two worker processes, without Spark's start; MirrorMaker's start is left
out as well. They take turns; the first three turns warm the brokers' JVMs up, as those of production are. The ratios
are those within a turn, as a machine is not equally fast at all times; their median over the next seven turns is
reported.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, Self

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # re-exported without saying so

from benchmarks import mirrormaker
from benchmarks.bootstraps import Bootstraps
from kafka_replication.config import Replication
from kafka_replication.copying.engine import CopyResult
from kafka_replication.kafka.engines import ENGINES
from kafka_replication.runs import steps
from kafka_replication.runs.leasing import EVERYTHING, leased
from kafka_replication.runs.run import Request, open_run
from kafka_replication.spark.jobs import Job, JobEnd, RangeResult, RangeTask
from kafka_replication.spark.launcher import Deliver
from kafka_replication.spark.worker import worker
from kafka_replication.store import open_store
from kafka_replication.verification.verify import VerifyResult
from stack.artifacts import kafka_jars
from stack.kafka_cluster import BENCH, KafkaCluster, start_all, stop_all

TOPIC, PARTITIONS, SIZE = "bench", 4, 1024
WARM_UP, PAIRS = 3, 7


def fill(bootstrap: str, records: int) -> None:
    """Values of JSON-like text that lz4 compresses about as well as real events."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
    rng = random.Random(7)
    words = [str(rng.getrandbits(40)) for _ in range(400)]
    pool = [
        (f'{{"id":{i},"body":"' + " ".join(rng.choices(words, k=100))).encode()[:SIZE].ljust(SIZE) for i in range(2000)
    ]
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": "lz4",
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "enable.idempotence": True,
        }
    )
    send(producer, TOPIC, PARTITIONS, ((b"k%08d" % number, pool[number % 2000]) for number in range(records)))


def send(producer: Producer, topic: str, partitions: int, records: Iterable[tuple[bytes, bytes]]) -> None:
    """Send keys and values to the partitions in turn, and wait until all are acknowledged."""
    for number, (key, value) in enumerate(records):
        while True:
            try:
                producer.produce(topic, value=value, key=key, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush()


class TwoWorkers:
    """A launcher that runs ranges in two fresh processes, as ``local[2]`` would."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.peak_mb = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def submit(self, job: Job, deliver: Deliver) -> JobEnd:
        with multiprocessing.get_context("spawn").Pool(2, _warm) as pool:
            pool.map(_nothing, range(4))
            started = time.monotonic()
            copied = pool.map(_copy, [(job, task) for task in job.tasks], chunksize=1)
            read_back = pool.map(_read_back, [(job, task) for task in job.tasks], chunksize=1)
            self.seconds = {
                "copy": max(ended for _, ended, _ in copied) - started,
                "verify": max(ended for _, ended, _ in read_back) - max(ended for _, ended, _ in copied),
            }
        self.peak_mb = max(self.peak_mb, *(memory for _, _, memory in (*copied, *read_back)))
        deliver(
            [
                RangeResult(key=task.key, copied=one, read_back=other)
                for task, (one, _, _), (other, _, _) in zip(job.tasks, copied, read_back, strict=True)
            ]
        )
        return JobEnd()


def _warm() -> None:
    import kafka_replication.kafka.engines.record.engine
    import kafka_replication.kafka.read_back.segment_reader  # noqa: F401


def _nothing(_: int) -> None:
    pass


def _copy(what: tuple[Job, RangeTask]) -> tuple[CopyResult, float, float]:
    job, task = what
    assert task.copy is not None
    return worker.copy(worker.tools_of(job), task.copy), time.monotonic(), _peak_mb()


def _read_back(what: tuple[Job, RangeTask]) -> tuple[VerifyResult, float, float]:
    job, task = what
    return worker.read_back(worker.tools_of(job), task.read_back, job.settings.attempts), time.monotonic(), _peak_mb()


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def ours(folder: Path, source: str, target: str, number: int, **settings: Any) -> TwoWorkers:
    """One whole run under a new name, with further ``settings`` of its file; its workers know the times."""
    replication = Replication.model_validate(
        {
            "name": f"bench-{number}",
            "source": {"connection": "source"},
            "target": {"connection": "target"},
            "topics": {"include": [TOPIC], "rename": f"bench-{number}.{{topic}}"},
            **settings,
        }
    )
    store = open_store(f"sqlite:///{folder}/store.db")
    launcher = TwoWorkers()
    with leased(open_run(replication, Bootstraps(source, target), store, f"bench-{number}"), EVERYTHING) as run:
        plan = steps.prepare(run, Request())
        done = steps.replicate(run, plan, launcher)
    if done.not_copied or done.not_verified or not done.read_back:
        raise SystemExit(f"not verified: {done}")
    return launcher


class Turn(NamedTuple):
    """MB/s of records' values: a copy, and the copy with its verification. For the peer both are the same."""

    copy: float
    both: float


PEER = "mirrormaker"


def one_turn(folder: Path, source: str, target: str, records: int, number: int) -> tuple[dict[str, Turn], float]:
    """What the peer and each of our engines did, and the memory of our largest worker in MB."""
    megabytes, alias = records * SIZE / 1e6, f"peer{number}"
    peer = megabytes / mirrormaker.copy(folder / alias, source, target, TOPIC, records, alias)
    turns, peak_mb = {PEER: Turn(peer, peer)}, 0.0
    for at, engine in enumerate(ENGINES):
        own = ours(folder, source, target, number * len(ENGINES) + at, copy={"engine": engine})
        peak_mb = max(peak_mb, own.peak_mb)
        copy, verify = own.seconds["copy"], own.seconds["verify"]
        turns[engine] = Turn(megabytes / copy, megabytes / (copy + verify))
    said = ", ".join(f"{name} {turn.copy:.0f} MB/s ({turn.copy / peer:.2f})" for name, turn in turns.items())
    print(f"{number + 1}: {said}", file=sys.stderr)
    return turns, peak_mb


def result(name: str, turns: Sequence[Mapping[str, Turn]]) -> dict[str, Any]:
    """The medians of one way to copy, and of its ratios to the peer within a turn."""
    return {
        "what": name,
        "copy_mb_s": round(median(turn[name].copy for turn in turns), 1),
        "copy_verify_mb_s": round(median(turn[name].both for turn in turns), 1),
        "copy_ratio": round(median(turn[name].copy / turn[PEER].copy for turn in turns), 2),
        "copy_verify_ratio": round(median(turn[name].both / turn[PEER].copy for turn in turns), 2),
    }


def main() -> None:
    records = int(os.environ.get("RECORDS", "1000000"))
    os.environ[BENCH] = "1"  # brokers as production has them
    kafka_jars()
    folder = Path(tempfile.mkdtemp(prefix="kafka-replication-bench-"))
    clusters = KafkaCluster("source", folder), KafkaCluster("target", folder)
    try:
        start_all(clusters)
        source, target = (cluster.bootstrap for cluster in clusters)
        fill(source, records)
        done = [one_turn(folder, source, target, records, number) for number in range(WARM_UP + PAIRS)]
        measured = [turns for turns, _ in done[WARM_UP:]]
        for name in (PEER, *ENGINES):
            print(json.dumps(result(name, measured)))
        peak = max(peak_mb for _, peak_mb in done)
        print(json.dumps({"records": records, "turns": len(measured), "worker_peak_mb": round(peak)}))
    finally:
        stop_all(clusters)
        shutil.rmtree(folder, ignore_errors=True)
