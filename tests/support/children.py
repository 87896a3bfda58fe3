"""Copies, runs and backfills in processes of their own, to be killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from kafka_replication.copying.engine import CopyResult
from kafka_replication.runtime.failpoints import VARIABLE
from kafka_replication.spark.jobs import JOB, RESULTS, Job
from tests.support.scenario import SHORT_LEASE, Scenario

ROOT = Path(__file__).parents[2]


def spawn(module: str, *arguments: str, failpoint: str = "") -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/plugins:{ROOT}"}
    environment |= {VARIABLE: failpoint} if failpoint else {}
    line = [sys.executable, "-m", f"tests.support.{module}", *arguments]
    return subprocess.Popen(line, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


def run_process(scene: Scenario, failpoint: str = "") -> subprocess.Popen[str]:
    """A whole run."""
    config = json.dumps(scene.document(lease=SHORT_LEASE))
    return spawn(
        "run_process", scene.source.bootstrap, scene.target.bootstrap, scene.store_url, config, failpoint=failpoint
    )


def copy_process(
    scene: Scenario, job: Job, failpoint: str = "", dies_after: tuple[int, int] | None = None
) -> subprocess.Popen[str]:
    """``dies_after``: so many chunks, and then so many calls (`copy_process`)."""
    file = scene.folder / "job.json"
    file.write_bytes(JOB.dump_json(job))
    death = [] if dies_after is None else [f"{dies_after[0]}:{dies_after[1]}"]
    return spawn("copy_process", str(file), *death, failpoint=failpoint)


def lines_until(process: subprocess.Popen[str], wanted: Callable[[str], bool]) -> list[str]:
    """Output up to and with the wanted line, or to the end."""
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if wanted(line):
            break
    return seen


def end_of(process: subprocess.Popen[str]) -> int:
    """The exit code, once everything it wrote was read."""
    lines_until(process, lambda line: False)
    assert process.stdout is not None
    process.stdout.close()
    return process.wait()


def result_of(process: subprocess.Popen[str]) -> CopyResult:
    lines = lines_until(process, lambda line: line.startswith("RESULT"))
    assert end_of(process) == 0
    copied = RESULTS.validate_json(lines[-1].removeprefix("RESULT "))[0].copied
    assert copied is not None
    return copied
