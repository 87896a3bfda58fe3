"""Processes die at any moment, by SIGKILL; running the same thing again loses nothing and doubles nothing."""

from __future__ import annotations

import os
import random
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kafka_replication.runtime.events import Event
from kafka_replication.spark.jobs import Job
from tests.support.checker import read
from tests.support.children import copy_process, end_of, lines_until, result_of, run_process
from tests.support.jobs import InProcess, copies
from tests.support.scenario import Scenario, numbered, only

KILLS = int(os.environ.get("KILLS", "6"))
CALLS = 12_000  # a session and its first chunk of 250 records make about as many, a later chunk 8,000
RECORDS = 8_000  # 20 chunks
LONGEST = 900  # seconds: the longest time-out of a transaction that brokers allow by default


def is_chunk(line: str) -> bool:
    return str(Event.CHUNK_COMMITTED) in line


def ready(scene: Scenario, count: int, chunk: int = 400, transaction_timeout: int = 6) -> Job:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(count))
    copy = {"engine": "record", "chunk_records": chunk, "transaction_timeout": transaction_timeout}
    scene.settings |= {"copy": copy}
    return scene.copy_job()


@pytest.mark.slow  # a row of the faults
def test_random_kills(scene: Scenario) -> None:
    """Kills at random moments: before the first chunk, inside a chunk, while one is committed; none after the last."""
    seed = int(os.environ.get("KILL_SEED", random.randrange(10**6)))
    print(f"KILL_SEED={seed}")
    dice = random.Random(seed)
    records = 1_100 * (KILLS + 1)
    job = ready(scene, records, chunk=250)  # a process commits at most 4 chunks
    for _ in range(KILLS):
        chunks, calls = dice.choice([0, 1, 1, 2, 3]), dice.randrange(1, CALLS)
        assert end_of(copy_process(scene, job, dies_after=(chunks, calls))) == -signal.SIGKILL, (chunks, calls)
    middle = len(read(scene.target.bootstrap, scene.topic, 0, committed=False))
    assert middle > 0
    last = result_of(copy_process(scene, job))
    assert last.error is None
    assert 0 < last.copied < records
    scene.assert_copied()
    report = scene.run()
    assert report.outcome == "done", report.table()
    assert sum(each.copied for each in report.ranges) == 0
    assert scene.watermark() == records
    scene.idle_run()


OFTEN = {"P2", "P1:2", "P4", "P5"}  # the others are rows of the faults


def points(*of: str) -> pytest.MarkDecorator:
    each = [point if point in OFTEN else pytest.param(point, marks=pytest.mark.slow) for point in of]
    return pytest.mark.parametrize("failpoint", each)


@points("P0", "P1", "P2", "P3")
def test_kill_at_every_step_of_a_first_chunk(scene: Scenario, failpoint: str) -> None:
    """The next run alone heals it. `test_kill_a_whole_run` has the later chunks."""
    job = ready(scene, 2_000)
    process = copy_process(scene, job, failpoint)
    assert end_of(process) == -signal.SIGKILL
    committed = 1 if failpoint == "P3" else 0
    report = scene.run()
    assert report.outcome == "done", report.table()
    assert sum(each.copied for each in report.ranges) == 2_000 - 400 * committed
    assert scene.watermark() == 2_000
    scene.assert_copied()
    scene.idle_run()


@points("P1:2", "P2:3", "P3:2", "P4", "P5")
def test_kill_a_whole_run(scene: Scenario, failpoint: str) -> None:
    """Verified and not stored, or stored and not reported: the next run copies nothing, and the watermark gets there.

    P2 is reached once as the partition is opened.
    """
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(2_000))
    scene.settings |= {"copy": {"chunk_records": 400}}
    process = run_process(scene, failpoint)
    assert end_of(process) == -signal.SIGKILL
    assert scene.watermark() == {"P5": 2_000}.get(failpoint)
    launcher = InProcess()
    report = scene.run(launcher)
    copied: dict[str, Any] = {"P1:2": 1_600, "P2:3": 1_600, "P3:2": 1_200}
    assert sum(each.copied for each in report.ranges) == copied.get(failpoint, 0)
    assert report.outcome == ("done" if failpoint in copied else "nothing_to_do"), report.table()
    assert [len(copies(job)) for job in launcher.jobs] == ([1] if failpoint in copied else [])
    assert scene.watermark() == 2_000
    scene.assert_copied()


@pytest.mark.timeout(LONGEST - 100)
def test_nobody_waits_for_a_dead_run_s_transaction(scene: Scenario) -> None:
    """It died with its entries in the ledger and before their commit: the next run fences it, instead of waiting for its time-out."""
    job = ready(scene, 2_000, transaction_timeout=LONGEST)
    assert end_of(copy_process(scene, job, "P2:3")) == -signal.SIGKILL
    report = scene.run()
    assert report.outcome == "done", report.table()
    scene.assert_copied()


def test_copied_and_not_verified(scene: Scenario) -> None:
    """All is on the target, and the run died before it read back: the next one only verifies."""
    job = ready(scene, 2_000)
    process = copy_process(scene, job, "P3:5")
    assert end_of(process) == -signal.SIGKILL
    launcher = InProcess()
    report = scene.run(launcher)
    assert [copies(each) for each in launcher.jobs] == [[]]
    assert (only(report).copied, only(report).copied_before, only(report).digest_ok) == (0, 2_000, True)
    assert scene.watermark() == 2_000
    scene.assert_copied()


def test_a_sleeper_that_wakes_is_fenced(scene: Scenario) -> None:
    """A copier stands still in the middle, another finishes its work; then it goes on."""
    job = ready(scene, RECORDS, transaction_timeout=LONGEST)  # not its end, but the other one fences
    gate = scene.folder / "gate"
    gate.touch()
    sleeper = copy_process(scene, job, f"P1:4={gate}")  # inside the fourth chunk
    for _ in range(3):
        lines_until(sleeper, is_chunk)
    sleeper.send_signal(signal.SIGSTOP)
    gate.unlink()
    try:
        other = result_of(copy_process(scene, job))
        assert other.error is None and 0 < other.copied < RECORDS
        scene.assert_copied()
    finally:
        sleeper.send_signal(signal.SIGCONT)
    woken = result_of(sleeper)
    assert woken.fenced and "fenced" in (woken.error or ""), woken
    assert 0 < woken.copied < RECORDS
    assert woken.copied + other.copied == RECORDS
    scene.assert_copied()
    assert scene.run().outcome == "done"
    scene.assert_copied()


def test_two_copiers_at_once(scene: Scenario) -> None:
    """Without a lease, one fences the other; together they copy everything once."""
    job = ready(scene, RECORDS, transaction_timeout=LONGEST)
    processes = [copy_process(scene, job) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(result_of, processes))
    assert any(each.error is None for each in results), results
    assert all(each.error is None or each.fenced for each in results), results
    scene.assert_copied()
