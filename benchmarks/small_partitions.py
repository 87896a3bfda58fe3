"""``python -m benchmarks.small_partitions``: many small partitions, with each copy engine, as a user starts the run.

PARTITIONS (default 80; 1000 and 5000 are the large cases) of 100 records each, with each of ENGINES (default all),
beside BUSY (default 0) processes that keep a processor at work. Memory is bounded if the largest process of a run
needs about the same for any engine and any number of partitions. It ends with code 1 if one needs more than MB (default
300). With TOPICS=10 it measures a run with nothing new over so many topics of 1,000 empty partitions each instead.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks import clusters
from benchmarks.tables import heading, row
from benchmarks.whole_runs import SMALL, Measured, Stage, produce, small_row
from benchmarks.workload import ENGINES, REPEATS, create
from kafka_replication.runtime import stopping

EACH, TOPIC, OPENING = 100, "small", 6


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


def idle(stage: Stage, topics: int) -> Iterator[Measured]:
    """Runs with nothing new, behind those that open the partitions: brokers need a while for so many."""
    for number in range(topics):
        create(stage.pair.clusters[0].bootstrap, f"{TOPIC}-{number}", 1_000)
    file = stage.file("idle", f"^{TOPIC}-")
    for _ in range(OPENING):
        if stage.started(file).wait() == 0 and "opened idle" not in stage.said("idle"):
            break
    for _ in range(REPEATS):
        yield stage.terminal(file, 0)


def main() -> None:
    stopping.on_signals()  # so that no busy process and no broker is left behind
    partitions, processes = int(os.environ.get("PARTITIONS", "80")), int(os.environ.get("BUSY", "0"))
    largest, most = 0.0, float(os.environ.get("MB", "300"))
    what = f"{partitions:,} partitions with {EACH} records each, {processes} busy processes"
    topics = int(os.environ.get("TOPICS", "0"))
    print(f"{topics} topics of 1,000 empty partitions\n" if topics else f"{what}\n")
    heading(SMALL)
    with clusters.plain() as pair:
        if topics:
            row(small_row(f"idle, {topics} topics", list(idle(Stage(pair), topics))))
            return
        stage, source = Stage(pair), pair.clusters[0].bootstrap
        create(source, TOPIC, partitions)
        produce(source, TOPIC, partitions, EACH)
        for engine in os.environ.get("ENGINES", " ".join(ENGINES)).split():
            with busy(processes):
                run = stage.terminal(stage.file(f"small-{engine}", TOPIC, copy={"engine": engine}), partitions * EACH)
            row(small_row(f"`{engine}`", [run]))
            largest = max(largest, run.whole.mb)
    if largest > most:
        sys.exit(f"a process of a run needed {largest:.0f} MB, more than {most:.0f}")


if __name__ == "__main__":
    main()
