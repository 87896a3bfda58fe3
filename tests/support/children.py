"""Copies, runs and backfills in processes of their own, to be killed."""

from __future__ import annotations

import json
from collections.abc import Callable

from kafka_replication.copying.engine import CopyResult
from kafka_replication.runtime.failpoints import VARIABLE
from kafka_replication.spark.jobs import JOB, RESULTS, Job
from tests.support.programs import Program
from tests.support.scenario import Scenario


def spawn(module: str, *arguments: str, failpoint: str = "") -> Program:
    return Program(f"tests.support.{module}", arguments, {VARIABLE: failpoint} if failpoint else {})


def run_process(scene: Scenario, failpoint: str = "", at_once: int = 1) -> Program:
    """A whole run, which works on so many partitions at a time."""
    config = json.dumps(scene.document())
    arguments = (scene.source.bootstrap, scene.target.bootstrap, scene.store_url, config, str(at_once))
    return spawn("run_process", *arguments, failpoint=failpoint)


def copy_process(scene: Scenario, job: Job, failpoint: str = "", dies_after: tuple[int, int] | None = None) -> Program:
    """``dies_after``: so many chunks, and then so many calls (`copy_process`)."""
    file = scene.folder / "job.json"
    file.write_bytes(JOB.dump_json(job))
    death = [] if dies_after is None else [f"{dies_after[0]}:{dies_after[1]}"]
    return spawn("copy_process", str(file), *death, failpoint=failpoint)


def lines_until(process: Program, wanted: Callable[[str], bool]) -> list[str]:
    """Output up to and with the wanted line, or to the end."""
    seen = []
    for line in process.stdout:
        seen.append(line)
        if wanted(line):
            break
    return seen


def end_of(process: Program) -> int:
    """The exit code, once everything it wrote was read."""
    lines_until(process, lambda line: False)
    process.stdout.close()
    return process.wait()


def result_of(process: Program) -> CopyResult:
    lines = lines_until(process, lambda line: line.startswith("RESULT"))
    assert end_of(process) == 0
    copied = RESULTS.validate_json(lines[-1].removeprefix("RESULT "))[0].copied
    assert copied is not None
    return copied
