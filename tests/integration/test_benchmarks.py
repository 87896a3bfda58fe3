"""Benchmarks that are run once in a while still run. What they print of speed means nothing here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import franz_go
from benchmarks.copying import LOOP, MIRRORMAKER, OURS
from benchmarks.usage import Usage, until_ended
from benchmarks.workload import ENGINES, FEW, SHAPES

ROOT = Path(__file__).parents[2]
BURN = "import time\nwhile time.process_time() < 0.5: pass"


def run(module: str, **settings: str) -> list[str]:
    """The lines that a benchmark prints."""
    line = [sys.executable, "-m", module]
    done = subprocess.run(line, cwd=ROOT, env={**os.environ, **settings}, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr[-3000:]
    return done.stdout.splitlines()


def cells_of(lines: list[str]) -> list[list[str]]:
    """Of the rows of a table, without its heading."""
    return [line.strip("| ").split(" | ") for line in lines if line.startswith("| ") and "---" not in line][1:]


@pytest.mark.slow
def test_the_ledger_s_history() -> None:
    """Few partitions and little history."""
    rows = [row.split()[:2] for row in run("benchmarks.ledger_history", TOPICS="2", SIZES="0,200", REPEATS="2")[1:]]
    assert rows == [[kind, size] for kind in ("idle", "work", "copier") for size in ("0", "200")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "scale", "several"),
    [("runs", 0.001, 3), ("copy", 0.001, 3), ("brokers", 0.0005, 2), ("distance", 0.0005, 2), ("tls", 0.0005, 2)],
)
def test_a_table_of_make_bench(table: str, scale: float, several: int) -> None:
    """Few records: each shape has a row for each engine and each peer, under the command that made it."""
    lines = run("benchmarks", BENCH_ONLY=table, SCALE="0.001", REPEATS="1", MB="1000")
    assert f"`SCALE=0.001 REPEATS=1 BENCH_ONLY={table} make bench`" in "\n".join(lines)
    shapes = [str(shape.scaled(scale)) for shape in (*SHAPES[:several], *(FEW if table == "copy" else ()))]
    with_go = [franz_go.NAME] if table != "tls" and shutil.which("go") else []
    assert [cells[:2] for cells in cells_of(lines)] == [
        [shape, copier] for shape in shapes for copier in (*OURS, MIRRORMAKER, LOOP, *with_go)
    ]


@pytest.mark.slow
def test_the_table_of_small_runs() -> None:
    lines = run("benchmarks", BENCH_ONLY="small", SCALE="0.001", REPEATS="1", MB="1000")
    assert [cells[0] for cells in cells_of(lines)] == [
        "1,000 new records, terminal",
        "nothing new, terminal",
        "1,000 new records, trigger in Airflow",
        "20 partitions with 100 new records each, terminal, once",
    ]


@pytest.mark.slow
def test_the_times_of_a_failover() -> None:
    """Of a source that is killed: the dry run seals nothing."""
    rows = cells_of(run("benchmarks.failover_times", PARTITIONS="3"))
    assert [cells[:3] for cells in rows] == [["dry run", "3", "0"], ["`--apply`", "3", "3"]]


@pytest.mark.slow
def test_the_times_of_a_start() -> None:
    """From the terminal and in Airflow, all steps that depend on nothing but the run."""
    terminal, _, airflow = "\n".join(run("benchmarks.start_times", REPEATS="1")).partition("in Airflow")
    ours = ["Spark's JVM starts", "the driver's Python starts", "all is verified, and the watermarks are moved"]
    tasks = [f"the task `{task}` {what}" for task in ("plan", "replicate", "report") for what in ("begins", "ends")]
    for table, steps in ((terminal, [*ours, "the command ends"]), (airflow, [*ours, *tasks])):
        said = [cells[2].rstrip(" |") for cells in cells_of(table.splitlines())]
        assert set(steps) <= set(said), table
        assert said.index(ours[0]) < said.index(ours[1]) < said.index(ours[2])


@pytest.mark.slow
def test_batches_of_few_records() -> None:
    lines = run("benchmarks.few_records", SHAPES="100x4", SCALE="0.01", REPEATS="1")
    targets = ("one broker", "three brokers", "20 ms away")
    cpu, _, copied = "\n".join(lines).partition("\n\n`")
    assert [cells[:2] for cells in cells_of(cpu.splitlines())] == [["100", "4"]]
    rows = cells_of(copied.splitlines())
    assert [cells[:3] for cells in rows] == [[target, "2,000 x 100 B", "4"] for target in targets]


@pytest.mark.slow
def test_a_run_that_needs_more_memory_than_is_meant_is_told() -> None:
    settings = {**os.environ, "PARTITIONS": "4", "MB": "1"}
    line = [sys.executable, "-m", "benchmarks.small_partitions"]
    done = subprocess.run(line, cwd=ROOT, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "more than 1" in done.stderr, done.stderr[-3000:]
    assert [cells[0] for cells in cells_of(done.stdout.splitlines())] == [f"`{engine}`" for engine in ENGINES]


def test_usage_counts_what_a_child_s_ended_child_used() -> None:
    """It burns half a second of a processor between two looks or not: its parent waited for it, so the system knows."""
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN!r}])"
    process = subprocess.Popen([sys.executable, "-c", parent])
    with Usage([process.pid]) as usage:
        until_ended(process.pid)
    process.wait()
    assert usage.used.cpu >= 0.5
    assert usage.used.mb > 1
