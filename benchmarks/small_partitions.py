"""``python -m benchmarks.small_partitions``: many small partitions, with each copy engine, as a user starts the run.

PARTITIONS (default 80; 1000 and 5000 are the large cases) of 100 records each, with each of ENGINES (default all),
beside BUSY (default 0) processes that keep a processor at work. Memory is bounded if the largest process of a run
needs about the same for any engine and any number of partitions. It ends with code 1 if one needs more than MB (default
300).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks import clusters
from benchmarks.tables import heading, row
from benchmarks.whole_runs import SMALL, Stage, produce, small_row
from benchmarks.workload import ENGINES, create
from kafka_replication.runtime import stopping

EACH, TOPIC = 100, "small"


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


def main() -> None:
    stopping.on_signals()  # so that no busy process and no broker is left behind
    partitions, processes = int(os.environ.get("PARTITIONS", "80")), int(os.environ.get("BUSY", "0"))
    largest, most = 0.0, float(os.environ.get("MB", "300"))
    print(f"{partitions:,} partitions with {EACH} records each, {processes} busy processes\n")
    heading(SMALL)
    with clusters.plain() as pair:
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
