"""``python -m benchmarks.start_times``: when each step of a small run begins, from the terminal and in Airflow.

4 partitions with 250 new records each, which an earlier run has opened. Births of processes are seen every 50 ms; what
happens within a process is what its log says, and when tasks begin and end what Airflow says. Medians of REPEATS runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from statistics import median

import psutil

from benchmarks import clusters
from benchmarks.tables import heading, row
from benchmarks.usage import has_ended
from benchmarks.whole_runs import Stage, produce, with_airflow
from benchmarks.workload import REPEATS, create
from kafka_replication.spark.local import DAEMON
from kafka_replication.spark.preloaded import PROGRAM
from stack.airflow_api import AirflowApi

EVERY = 0.05  # seconds between two looks
WORKER = "the first worker is there"
# By a part of the log's line.
VERIFIED = "all is verified, and the watermarks are moved"
LINES = {
    "to be copied": "the plan is made: modules are loaded, offsets and the ledger are read",
    "all copied, reading back": "all is copied",
    "4 of 4 ranges done": VERIFIED,
}


def _kind(process: psutil.Process) -> str | None:
    """The step that begins with this process."""
    command = process.cmdline()
    if "org.apache.spark.launcher.Main" in command:
        return "Spark's launcher builds its command, in a JVM of its own"
    if "org.apache.spark.deploy.SparkSubmit" in command and "java" in command[0]:
        return "Spark's JVM starts"
    if len(command) > 1 and command[1].endswith(".py"):
        return "the driver's Python starts, and gives its place to the one that is ready"
    if DAEMON in command:
        return "PySpark's daemon starts, with the first task, and gives its place"
    if PROGRAM in command:
        above = [each for each in process.parents() if PROGRAM in each.cmdline()]
        return ("driver's modules are loaded beside the JVM", "a worker's modules are loaded", WORKER)[len(above)]
    return None


def _births(pid: int, began: float, over: Callable[[], bool]) -> Iterator[tuple[str, float]]:
    """The processes of a run as they come, until it is over, and the seconds since it began."""
    parent = psutil.Process(pid)
    older = {process.pid for process in parent.children(recursive=True)}
    while not over():
        for process in parent.children(recursive=True):
            with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                if process.pid not in older and (what := _kind(process)) is not None:
                    yield what, time.time() - began
        time.sleep(EVERY)


def _first(births: Iterator[tuple[str, float]]) -> dict[str, float]:
    found = dict[str, float]()
    for what, since in births:
        found.setdefault(what, since)
    return found


def _said(log: Path, began: float) -> Iterator[tuple[str, float]]:
    for line in log.read_text().splitlines():
        for part, what in LINES.items():
            if part in line:
                yield what, datetime.fromisoformat(line[:23].replace(",", ".")).timestamp() - began


def from_the_terminal(stage: Stage, file: Path) -> Mapping[str, float]:
    """The steps of one run, and the seconds from its start at which they begin."""
    began = time.time()
    process = stage.started(file)
    found = _first(_births(process.pid, began, lambda: has_ended(process.pid)))
    ended = time.time() - began
    if process.wait() != 0:
        raise SystemExit(f"the run failed: {stage.said(file.stem)}")
    return {**found, **dict(_said(stage.log(file.stem), began)), "the command ends": ended}


def in_airflow(api: AirflowApi, pid: int, is_verified: Callable[[], bool]) -> Mapping[str, float]:
    """The steps of one DAG run, and the seconds from its trigger at which they begin."""
    began = time.time()
    run_id = api.trigger("scheduled")
    found = {"Airflow has taken the trigger": time.time() - began}
    found |= _first(_births(pid, began, is_verified)) | {VERIFIED: time.time() - began}
    if api.wait_for_run("scheduled", run_id) != "success":
        raise SystemExit("the DAG run failed")
    for task in api.get(f"dags/scheduled/dagRuns/{run_id}/taskInstances")["task_instances"]:
        for date, what in (("start_date", "begins"), ("end_date", "ends")):
            if task[date] is not None:
                found[f"the task `{task['task_id']}` {what}"] = datetime.fromisoformat(task[date]).timestamp() - began
    return found


def _are_verified(records: Callable[[], int], wanted: int) -> bool:
    return records() >= wanted


def show(what: str, runs: Sequence[Mapping[str, float]]) -> None:
    """The table of the steps that all runs have, in medians."""
    print(f"\n`python -m benchmarks.start_times`: 1,000 new records in 4 partitions, {what}\n")
    heading(("second", "later than the step before", "what begins, or is there"))
    before, said = 0.0, set[str].intersection(*(set(run) for run in runs))
    steps = {step: median(run[step] for run in runs) for step in said}
    for step, second in sorted(steps.items(), key=lambda each: each[1]):
        row([second, second - before, step])
        before = second


def main() -> None:
    with clusters.plain() as pair:
        stage, source = Stage(pair), pair.clusters[0].bootstrap
        create(source, "few")
        file, terminal, airflow = stage.file("few", "few"), list[Mapping[str, float]](), list[Mapping[str, float]]()
        for _ in range(1 + REPEATS):
            produce(source, "few", 4, 250)
            terminal.append(from_the_terminal(stage, file))
        with with_airflow(stage) as (api, pid), stage.watermarks("scheduled") as verified:
            for number in range(1, 2 + REPEATS):
                produce(source, "scheduled", 4, 250)
                airflow.append(in_airflow(api, pid, partial(_are_verified, verified, 1_000 * number)))
    show("from the terminal", terminal[1:])
    show("from the trigger in Airflow", airflow[1:])


if __name__ == "__main__":
    main()
