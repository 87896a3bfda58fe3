"""A range that is given up without transactions, where nothing fences it: it ends at once, and writes no position any more."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partialmethod
from pathlib import Path

import pytest

from kafka_replication.runtime import failpoints
from kafka_replication.spark import worker
from kafka_replication.spark.jobs import RangeResult
from kafka_replication.spark.small_ranges import BundleWorker
from tests.support.scenario import Scenario, numbered
from tests.support.waiting import SAFETY, wait_until

COUNT = 10


class GivenUp:
    """One range of a source with `COUNT` records, at work in a thread as among other small ranges."""

    def __init__(self, scene: Scenario, threads: ThreadPoolExecutor) -> None:
        self.scene, self._threads, self.stop = scene, threads, threading.Event()
        scene.settings |= {"delivery": "at_least_once", "copy": {"stall_timeout": 5}}
        scene.source.create(scene.topic)
        scene.source.produce(scene.topic, numbered(COUNT))

    def begin(self, more: int = 0) -> Future[RangeResult]:
        """``more`` offsets never come: the source is silent."""
        job = self.scene.copy_job()
        (task,) = job.tasks
        assert task.copy is not None
        longer = replace(task.copy, range=replace(task.copy.range, until=COUNT + more))
        tools = worker.Tools(job, self.stop)
        return self._threads.submit(worker.work_on, tools, replace(task, copy=longer))

    def error(self, work: Future[RangeResult]) -> str:
        copied = work.result(SAFETY).copied
        assert copied is not None and copied.error is not None
        return copied.error


@pytest.fixture
def given_up(scene: Scenario, monkeypatch: pytest.MonkeyPatch) -> Iterator[GivenUp]:
    failpoints.forget()  # each test reaches its own for the first time
    with ThreadPoolExecutor(1) as threads:
        yield GivenUp(scene, threads)


def test_one_whose_source_is_silent_does_not_wait_for_it(given_up: GivenUp) -> None:
    work = given_up.begin(more=1)
    wait_until(lambda: given_up.scene.target.size(given_up.scene.topic) == COUNT - 1)  # the last one is kept back
    given_up.stop.set()
    assert "the source sent nothing" not in given_up.error(work)


def test_one_that_does_not_end_is_not_dealt_again_where_nothing_fences_it(
    given_up: GivenUp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    job = given_up.scene.copy_job()
    monkeypatch.setenv(failpoints.VARIABLE, f"W={gate}")
    monkeypatch.setattr(BundleWorker, "work", partialmethod(BundleWorker.work, quiet=0.05, to_end=0.05))
    try:
        results = worker.WorkerJob(replace(job, tasks=[], together=2)).together(job.tasks)
    finally:
        gate.unlink()
    (result,) = results
    assert result.at_work and result.copied is not None
    assert "was told to give the range up" in (result.copied.error or "") and "counted" in result.copied.remedy


def test_one_that_has_sent_its_chunk_does_not_commit_it(
    given_up: GivenUp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    monkeypatch.setenv(failpoints.VARIABLE, f"P1={gate}")
    work = given_up.begin()
    wait_until(failpoints.at_gate(gate).exists)
    given_up.stop.set()
    gate.unlink()
    assert "committing" in given_up.error(work)
    assert given_up.scene.position().next_offset == 0, "whoever is dealt the range next begins there"
    report = given_up.scene.run()
    assert (report.outcome, report.ranges[0].duplicates) == ("done", COUNT), report.table()
