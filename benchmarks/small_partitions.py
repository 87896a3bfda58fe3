"""``python -m benchmarks.small_partitions``: many small partitions, with each copy engine, as a user starts the run.

PARTITIONS (default 80; 1000 is the large case) of 100 records each, beside BUSY (default 0) processes that keep a
processor at work. Memory is bounded if the largest worker of a run (worker_mb, threads) needs about the same for either
engine and any number of partitions; it ends with code 1 if one needs more than MB (default 300). Seconds are of the
wall clock, CPU seconds those of all processes of the run; the brokers are not counted. Without SOURCE and TARGET
(bootstrap addresses) it starts brokers.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.whole_runs import Stage, create, produce, show
from kafka_replication.kafka.engines import ENGINES
from kafka_replication.runtime import stopping
from stack.kafka_cluster import BENCH, KafkaCluster, start_all, stop_all

EACH = 100


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes that each keep a processor at work."""
    at_work = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in at_work:
            process.kill()
            process.wait()


@contextmanager
def brokers(folder: Path) -> Iterator[tuple[str, str]]:
    """The bootstrap addresses of both sides."""
    if "SOURCE" in os.environ and "TARGET" in os.environ:
        yield os.environ["SOURCE"], os.environ["TARGET"]
        return
    os.environ[BENCH] = "1"  # brokers as production has them
    clusters = KafkaCluster("source", folder), KafkaCluster("target", folder)
    try:
        start_all(clusters)
        yield clusters[0].bootstrap, clusters[1].bootstrap
    finally:
        stop_all(clusters)


def main() -> None:
    stopping.on_signals()  # so that no busy process and no broker is left behind
    partitions, processes = int(os.environ.get("PARTITIONS", "80")), int(os.environ.get("BUSY", "0"))
    largest, most = 0.0, float(os.environ.get("MB", "300"))
    folder = Path(tempfile.mkdtemp(prefix="kr-bench-"))
    try:
        with brokers(folder) as (source, target):
            stage, topic = Stage(folder, source, target), f"small-{time.time_ns()}"
            create(source, topic, partitions)
            produce(source, topic, partitions, EACH)
            for engine in os.environ.get("ENGINES", ",".join(ENGINES)).split(","):
                file = stage.file(f"{topic}-{engine}", topic, copy={"engine": engine})
                what = f"{partitions:,} partitions with {EACH} records each, {engine}, {processes} busy processes"
                with busy(processes):
                    show(run := stage.terminal(what, file, partitions * EACH))
                largest = max(largest, run.worker_mb)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if largest > most:
        sys.exit(f"a process of a run needed {largest:.0f} MB, more than {most:.0f}")


if __name__ == "__main__":
    main()
