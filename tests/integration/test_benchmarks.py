"""Benchmarks that are run once in a while still run. What they print of speed means nothing here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.copying import LOOP, MIRRORMAKER, OURS
from benchmarks.usage import Usage, until_ended
from benchmarks.workload import SHAPES

ROOT = Path(__file__).parents[2]
BURN = "import time\nwhile time.process_time() < 0.5: pass"


def run(module: str, **settings: str) -> list[str]:
    """The lines that a benchmark prints."""
    line = [sys.executable, "-m", module]
    done = subprocess.run(line, cwd=ROOT, env={**os.environ, **settings}, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.mark.slow
def test_the_ledger_s_history() -> None:
    """Few partitions and little history."""
    rows = [row.split()[:2] for row in run("benchmarks.ledger_history", TOPICS="2", SIZES="0,200", REPEATS="2")[1:]]
    assert rows == [[kind, size] for kind in ("idle", "work", "copier") for size in ("0", "200")]


@pytest.mark.slow
@pytest.mark.parametrize("table", ["runs", "copy"])
def test_a_table_of_make_bench(table: str) -> None:
    """Few records: each shape has a row for each engine and each peer, under the command that made it."""
    lines = run("benchmarks", BENCH_ONLY=table, SCALE="0.001", REPEATS="1", MB="1000")
    assert f"`SCALE=0.001 REPEATS=1 BENCH_ONLY={table} make bench`" in "\n".join(lines)
    rows = [line.split(" | ") for line in lines if line.startswith("| ")][1:]
    shapes = [str(shape.scaled(0.001)) for shape in SHAPES]
    assert [row[:2] for row in rows] == [
        [f"| {shape}", copier] for shape in shapes for copier in (*OURS, MIRRORMAKER, LOOP)
    ]


def test_usage_counts_what_a_child_s_ended_child_used() -> None:
    """It burns half a second of a processor between two looks or not: its parent waited for it, so the system knows."""
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN!r}])"
    process = subprocess.Popen([sys.executable, "-c", parent])
    with Usage([process.pid]) as usage:
        until_ended(process.pid)
    process.wait()
    assert usage.used.cpu >= 0.5
    assert usage.used.mb > 1
