"""``python -m benchmarks.start_times``: at which second each step of a small run from the terminal begins.

4 partitions with 250 new records each, which an earlier run has opened. Births of processes are seen every 50 ms; what
happens within a process is what its log says. Medians of REPEATS runs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from statistics import median

import psutil

from benchmarks import clusters
from benchmarks.tables import heading, row
from benchmarks.whole_runs import Stage, produce
from benchmarks.workload import REPEATS, create

EVERY = 0.05  # seconds between two looks
DAEMON = "kafka_replication.spark.preloaded_daemon"
# By a part of the log's line.
LINES = {
    "to be copied": "the plan is made: modules are loaded, offsets and the ledger are read",
    "all copied, reading back": "all is copied",
    "4 of 4 ranges done": "all is verified, and the watermarks are moved",
}


def _kind(process: psutil.Process) -> str | None:
    """The step that begins with this process."""
    command = process.cmdline()
    if "org.apache.spark.launcher.Main" in command:
        return "spark-submit builds its command, in a JVM of its own"
    if "org.apache.spark.deploy.SparkSubmit" in command and "java" in command[0]:
        return "Spark's JVM starts"
    if len(command) > 1 and command[1].endswith(".py"):
        return "the driver's Python starts"
    if DAEMON in command:
        parent = process.parent()
        of_daemon = parent is not None and DAEMON in parent.cmdline()
        return "the first worker is there" if of_daemon else "PySpark's daemon starts, with the first task"
    return None


def _births(pid: int, began: float) -> Iterator[tuple[str, float]]:
    """The processes of a run as they come, until it ends, and the seconds since it began."""
    run = psutil.Process(pid)
    while run.is_running() and run.status() != psutil.STATUS_ZOMBIE:
        for process in run.children(recursive=True):
            with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                if (what := _kind(process)) is not None:
                    yield what, time.time() - began
        time.sleep(EVERY)


def _said(log: Path, began: float) -> Iterator[tuple[str, float]]:
    for line in log.read_text().splitlines():
        for part, what in LINES.items():
            if part in line:
                yield what, datetime.fromisoformat(line[:23].replace(",", ".")).timestamp() - began


def timeline(stage: Stage, file: Path) -> Mapping[str, float]:
    """The steps of one run, and the seconds from its start at which they begin."""
    found, began = dict[str, float](), time.time()
    process = stage.started(file)
    for what, since in _births(process.pid, began):
        found.setdefault(what, since)
    ended = time.time() - began
    if process.wait() != 0:
        raise SystemExit(f"the run failed: {stage.said(file.stem)}")
    return {**found, **dict(_said(stage.log(file.stem), began)), "the command ends": ended}


def main() -> None:
    with clusters.plain() as pair:
        stage, source = Stage(pair), pair.clusters[0].bootstrap
        create(source, "few")
        file, runs = stage.file("few", "few"), list[Mapping[str, float]]()
        for _ in range(1 + REPEATS):
            produce(source, "few", 4, 250)
            runs.append(timeline(stage, file))
    print("`python -m benchmarks.start_times`: 1,000 new records in 4 partitions, from the terminal\n")
    heading(("second", "later than the step before", "what begins, or is there"))
    before = 0.0
    said = set[str].intersection(*(set(run) for run in runs[1:]))
    steps = {what: median(run[what] for run in runs[1:]) for what in said}
    for what, second in sorted(steps.items(), key=lambda step: step[1]):
        row([second, second - before, what])
        before = second


if __name__ == "__main__":
    main()
