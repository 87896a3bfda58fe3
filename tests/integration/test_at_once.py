"""Several runs of one replication at the same time: each on its own target topics, never two on one."""

from __future__ import annotations

import json
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import psutil
import pytest

from kafka_replication.documents import as_json
from kafka_replication.model.errors import Busy, Fenced
from kafka_replication.model.offsets import Coverage
from kafka_replication.planning.backfill_request import parse
from kafka_replication.reporting.progress import recent_runs, runs_at_work
from kafka_replication.reporting.run import RunReport
from kafka_replication.runs import leasing
from kafka_replication.runtime import failpoints
from kafka_replication.spark.jobs import Job
from kafka_replication.spark.launcher import Launcher
from kafka_replication.targets.start_offsets import StartOffsets
from tests.support import whole_runs
from tests.support.checker import read
from tests.support.children import end_of, spawn
from tests.support.jobs import Gate, InProcess
from tests.support.leases import acquire, exactly
from tests.support.programs import Program
from tests.support.scenario import Scenario, numbered, only
from tests.support.waiting import SAFETY, wait_until


@contextmanager
def impatient() -> Iterator[None]:
    """Runs wait for no topics of another run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leasing, "WAIT", 0)
        yield


def backfill(
    scene: Scenario, from_: int, until: int, launcher: Launcher | None = None, target: str | None = None, **more: Any
) -> RunReport:
    replication, launch = scene.replication(**more), launcher or InProcess()
    request = parse(replication, topics=[scene.topic], from_=str(from_), until=str(until), target_topic=target)
    return whole_runs.backfill(replication, scene.connections, scene.store, launch, request)


@pytest.fixture
def begin() -> Iterator[Callable[..., Future[RunReport]]]:
    """Begins a run in a thread."""
    with ThreadPoolExecutor(4) as pool:
        yield pool.submit


def held(gate: Gate, run: Future[RunReport]) -> None:
    """Wait until the run is inside its first job."""
    wait_until(lambda: gate.inside.is_set() or run.done())
    assert gate.inside.is_set(), run.result().table()


def test_live_runs_go_on_while_a_backfill_copies_into_another_topic(
    scene: Scenario, begin: Callable[..., Future[RunReport]]
) -> None:
    """The backfill stands in the middle of its work, and each live run opens, copies, verifies and advances."""
    other, gate = f"{scene.topic}.restored", Gate()
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(100))
    running = begin(backfill, scene, 0, 90, gate, other, max_records_per_run=30)
    try:
        held(gate, running)
        for round_ in range(3):
            scene.source.produce(scene.topic, numbered(10, 100 + 10 * round_))
            with impatient():
                report = scene.run()
            assert (report.outcome, report.notes) == ("done", ()), report.table()
            assert scene.watermark() == 110 + 10 * round_
        assert [run.target_topics for run in runs_at_work(scene.store, scene.name)] == [[other]]
    finally:
        gate.opened.set()
    assert only(running.result(SAFETY)).copied == 90
    scene.assert_copied()
    assert scene.check(target_topic=other, until=90).clean
    assert scene.run().outcome == "nothing_to_do"
    view = scene.bare_run().view()
    assert str(view.verified[scene.key(target=other)].coverage) == "[0, 90)"
    assert str(view.verified[scene.key()].coverage) == "[0, 130)"


def test_two_runs_verify_at_the_same_moment(scene: Scenario, begin: Callable[..., Future[RunReport]]) -> None:
    """Both write what is verified: neither fences the other, and neither's entry is lost."""
    other, both = f"{scene.topic}.restored", threading.Barrier(2)
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(60))
    assert scene.run().outcome == "done"

    def together() -> None:
        both.wait(SAFETY)

    for round_ in range(3):
        scene.source.produce(scene.topic, numbered(10, 60 + 10 * round_))
        first = begin(backfill, scene, 0, 20 + 10 * round_, InProcess(between=together), other)
        second = begin(scene.run, InProcess(between=together))
        assert [run.result(SAFETY).outcome for run in (first, second)] == ["done", "done"]
    view = scene.bare_run().view()
    assert str(view.verified[scene.key(target=other)].coverage) == "[0, 40)"
    assert str(view.verified[scene.key()].coverage) == "[0, 90)"
    scene.assert_copied()
    assert scene.check(target_topic=other, until=40).clean


def test_two_runs_never_work_on_the_same_target_topic(scene: Scenario, begin: Callable[..., Future[RunReport]]) -> None:
    other, gate = f"{scene.topic}.restored", Gate()
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(50))
    running = begin(backfill, scene, 0, 40, gate, other)
    try:
        held(gate, running)
        with impatient(), pytest.raises(Busy, match=f"{scene.name} is being worked on by .*{other}"):
            backfill(scene, 0, 50, target=other)
        waiting = begin(backfill, scene, 0, 50, None, other)
        wait_until(lambda: any(lease.waiting for lease in scene.store.leases(scene.name)) or waiting.done())
        assert not waiting.done()
    finally:
        gate.opened.set()
    assert [only(run.result(SAFETY)).copied for run in (running, waiting)] == [40, 10]
    assert len(read(scene.target.bootstrap, other, 0)) == 50
    assert scene.check(target_topic=other, until=50).clean


def test_a_live_run_does_the_topics_that_are_free(scene: Scenario, begin: Callable[..., Future[RunReport]]) -> None:
    second, gate = f"{scene.name}.second", Gate()
    scene.settings |= {"topics": {"include": [scene.topic, second]}}
    for topic in (scene.topic, second):
        scene.source.create(topic)
        scene.source.produce(topic, numbered(50))
    scene.run()
    for topic in (scene.topic, second):
        scene.source.produce(topic, numbered(10, 50))
    running = begin(backfill, scene, 0, 55, gate)
    try:
        held(gate, running)
        with impatient():
            report = scene.run()
        assert report.outcome == "done"
        assert [line.key.source.topic for line in report.ranges] == [second]
        assert len(report.notes) == 1 and report.notes[0].startswith(f"{scene.topic} was left to ")
        assert as_json(report)["notes"] == list(report.notes)
    finally:
        gate.opened.set()
    running.result(SAFETY)
    assert [line.key.source.topic for line in scene.run().ranges] == [scene.topic]
    scene.assert_copied()


def test_the_first_opening_is_never_done_in_part(scene: Scenario) -> None:
    """`latest` would mean something else for the topics that are opened later."""
    second = f"{scene.name}.second"
    scene.settings |= {"topics": {"include": [scene.topic, second]}, "start_from": "latest"}
    for topic in (scene.topic, second):
        scene.source.create(topic)
        scene.source.produce(topic, numbered(50))
    other = acquire(scene.store, scene.name, "other", "try-1", 60, exactly(second))
    with impatient(), pytest.raises(Busy, match=f"other .* is at work on {second}"):
        scene.run()
    assert scene.bare_run().view().positions == {}
    scene.store.release_lease(other)
    scene.run()
    assert {key.source.topic: p.start for key, p in scene.bare_run().view().positions.items()} == {
        scene.topic: 50,
        second: 50,
    }


def test_a_backfill_gives_way_between_its_slices(scene: Scenario, begin: Callable[..., Future[RunReport]]) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(100))
    scene.run(start_from="latest")
    scene.source.produce(scene.topic, numbered(10, 100))
    live = list[Future[RunReport]]()
    slices = list[bool]()

    def after_each(job: Job) -> None:
        slices.append(bool(live) and live[0].done())
        if not live:
            live.append(begin(scene.run, start_from="latest"))
            wait_until(lambda: any(lease.waiting for lease in scene.store.leases(scene.name)) or live[0].done())
            assert not live[0].done()

    report = backfill(scene, 0, 100, InProcess(after_each), start_from="latest", max_records_per_run=40)
    assert slices == [False, True, True]
    assert only(report).copied == 100
    assert only(live[0].result(SAFETY)).copied == 10
    assert scene.watermark() == 110
    found = scene.check()
    assert not (found.lost or found.doubled or found.altered or found.foreign), found


def run_process(scene: Scenario, failpoint: str, **more: Any) -> Any:
    config = json.dumps(scene.document(**more))
    places = [scene.source.bootstrap, scene.target.bootstrap, scene.store_url, config]
    return spawn("run_process", *places, failpoint=failpoint)


@pytest.mark.parametrize("failpoint", ["P1:2", pytest.param("P4", marks=pytest.mark.slow)])
def test_a_killed_run_holds_up_nobody_on_its_host(
    scene: Scenario, monkeypatch: pytest.MonkeyPatch, failpoint: str
) -> None:
    """Its lease would last an hour, and the next run would not wait for it."""
    monkeypatch.setenv("LEASE_SECONDS", "3600")
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(2_000))
    assert end_of(run_process(scene, failpoint)) == -signal.SIGKILL
    killed = scene.store.runs(scene.name)[0]
    assert (killed.state, killed.alive) == ("planned", False)
    assert recent_runs(scene.store, scene.name)[0].state == "died"
    assert runs_at_work(scene.store, scene.name) == []
    with impatient():
        report = scene.run()
    assert report.outcome in ("done", "nothing_to_do") and not report.notes, report.table()
    assert scene.watermark() == 2_000
    scene.assert_copied()
    died = scene.store.run(killed.run_id)
    assert died is not None and died.finished_at is not None
    assert (died.state, died.alive) == ("died", False)


def test_a_run_at_work_is_alive(scene: Scenario, begin: Callable[..., Future[RunReport]]) -> None:
    gate = Gate()
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(10))
    running = begin(scene.run, gate)
    try:
        held(gate, running)
        assert [run.alive for run in scene.store.runs(scene.name)] == [True]
        assert [one.state for one in recent_runs(scene.store, scene.name)] == ["running"]
    finally:
        gate.opened.set()
    running.result(SAFETY)
    assert [(run.state, run.alive) for run in scene.store.runs(scene.name)] == [("done", False)]


def test_a_command_that_fails_ends_its_run_as_failed(scene: Scenario) -> None:
    def away(job: Job) -> None:
        raise Busy("the launcher failed")

    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(10))
    with pytest.raises(Busy):
        scene.run(InProcess(away))
    assert [run.state for run in scene.store.runs(scene.name)] == ["failed"]
    assert scene.store.leases(scene.name) == []


def test_an_opening_that_was_about_to_begin_is_fenced_by_the_successor(scene: Scenario) -> None:
    """Its attempt had read that nothing is opened, stood still, and wakes after another run copied everything."""
    for side in (scene.source, scene.target):
        side.create(scene.topic)
    scene.source.produce(scene.topic, numbered(50))
    acquire(scene.store, scene.name, "late", "try-1", 0.05)
    target = scene.bare_run().clusters.target
    target.ledger.ensure(scene.replication())
    with closing(StartOffsets(scene.name, target)) as opening:
        assert not opening.fence().positions
        wait_until(lambda: scene.store.leases(scene.name) == [])
        assert scene.run().outcome == "done"
        opened = scene.position()
        with pytest.raises(Fenced):
            opening.commit({scene.key(): replace(opened, start=50, next_offset=50, coverage=Coverage())}, {})
    assert scene.position() == opened
    assert scene.run().outcome == "nothing_to_do"
    scene.assert_copied()


@pytest.mark.parametrize(
    "turn",
    [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(3, marks=pytest.mark.slow)],  # a row of the faults
    ids=["opening", "copying", "verifying"],
)
def test_an_attempt_that_comes_back_late_writes_nothing(scene: Scenario, turn: int) -> None:
    """It stood still just before it committed, longer than its lease. Another run took over; then the first one woke."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(100))
    scene.settings |= {"copy": {"transaction_timeout": 600}}  # not its end, but the other fences
    gate = scene.folder / "gate"
    gate.touch()
    config = json.dumps(scene.document(start_from="earliest"))
    places = [scene.source.bootstrap, scene.target.bootstrap, scene.store_url, config]
    late = spawn("run_process", *places, failpoint=f"P2:{turn}={gate}")
    try:
        wait_until(lambda: failpoints.at_gate(gate).exists() or late.poll() is not None)
        assert late.poll() is None
        stop_beside_the_store(scene, late)
        gate.unlink()
        scene.source.produce(scene.topic, numbered(50, 100))
        report = scene.run(start_from="earliest")
        assert report.outcome == "done" and not report.notes, report.table()
        before = scene.bare_run().view()
    finally:
        late.send_signal(signal.SIGCONT)
    assert end_of(late) not in (0, -signal.SIGKILL)
    after = scene.bare_run().view()
    assert (after.positions, after.verified) == (before.positions, before.verified)
    assert scene.watermark() == 150
    scene.assert_copied()
    assert [run.state for run in scene.store.runs(scene.name)] == ["done", "failed"][
        : len(scene.store.runs(scene.name))
    ]


def stop_beside_the_store(scene: Scenario, process: Program) -> None:
    """Stop the process, but not while it writes to the store: the file would stay locked."""
    while True:
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
        with closing(sqlite3.connect(scene.folder / "store.db", timeout=0.5, isolation_level=None)) as other:
            try:
                other.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError:
                process.send_signal(signal.SIGCONT)
