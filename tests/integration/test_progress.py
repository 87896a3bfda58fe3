"""What is seen of a run while it works."""

from __future__ import annotations

import json
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml

from kafka_replication.kafka.ledger import KafkaLedger
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import Unreachable
from kafka_replication.reporting.progress import Progress
from kafka_replication.runs import progress as watching
from kafka_replication.runs import runner
from kafka_replication.runs.run import Request, open_run
from kafka_replication.runtime.events import Event
from kafka_replication.spark.jobs import Job, RangeResult, RangeTask
from tests.support.command_line import cli, command, ended
from tests.support.jobs import InProcess, after_copy
from tests.support.scenario import Scenario, numbered
from tests.support.waiting import wait_until


@pytest.fixture
def ready(scene: Scenario) -> Scenario:
    scene.source.create(scene.topic, 2)
    scene.source.produce(scene.topic, numbered(300), 0)
    scene.source.produce(scene.topic, numbered(100), 1)
    return scene


def stored(scene: Scenario) -> Progress | None:
    """What the store knows about the newest run."""
    text = scene.store.runs(scene.name)[0].progress
    return Progress.from_json(text) if text else None


def awaited(scene: Scenario, condition: Callable[[Progress], bool]) -> Progress:
    def holds() -> bool:
        progress = stored(scene)
        return progress is not None and condition(progress)

    wait_until(holds)
    progress = stored(scene)
    assert progress is not None
    return progress


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if getattr(record, "event", None) is Event.PROGRESS]


def test_a_run_that_stands_still_shows_what_is_committed(ready: Scenario, caplog: pytest.LogCaptureFixture) -> None:
    """Everything is copied, nothing is read back yet."""
    caplog.set_level(logging.INFO)

    def look() -> None:
        progress = awaited(ready, lambda progress: progress.records > 0)
        assert (progress.ranges, progress.ranges_done, progress.offsets, progress.offsets_done) == (2, 0, 400, 400)
        assert progress.records == 400 and progress.bytes > 400 * 100
        assert progress.reading_back and progress.percent == 99 and progress.slowest is None

    report = ready.run(after_copy(look))
    assert report.outcome == "done", report.table()
    last = stored(ready)
    assert last is not None and (last.ranges_done, last.records, last.percent) == (2, 400, 100)
    assert f"{ready.name}: 2 of 2 ranges done, 400 records, " in lines(caplog)[-1]


class Halting(InProcess):
    """Looks before the second task of its job, when the first one is copied, read back and taken down."""

    def __init__(self, look: Callable[[], None]) -> None:
        super().__init__()
        self._look, self._begun = look, 0

    def _work(self, job: Job, task: RangeTask) -> RangeResult:
        self._begun += 1
        if self._begun == 2:
            self._look()
        return super()._work(job, task)


def test_in_the_middle_one_range_is_done_and_the_other_is_named(ready: Scenario) -> None:
    seen: list[Progress] = []
    report = ready.run(Halting(lambda: seen.append(awaited(ready, lambda progress: progress.ranges_done > 0))))
    assert report.outcome == "done", report.table()
    [progress] = seen
    assert (progress.ranges, progress.ranges_done, progress.offsets, progress.offsets_done) == (2, 1, 400, 300)
    assert (progress.records, progress.percent) == (300, 75)
    assert (progress.slowest, progress.slowest_percent) == (f"{ready.topic}-1", 0)


class Waiting(InProcess):
    """Works once ``viewed`` is set, and sets ``done``."""

    def __init__(self, viewed: threading.Event, done: threading.Event) -> None:
        super().__init__()
        self._viewed, self._done, self._begun = viewed, done, 0

    def _work(self, job: Job, task: RangeTask) -> RangeResult:
        assert self._viewed.wait(60)
        result = super()._work(job, task)
        self._begun += 1
        if self._begun == 2:
            self._done.set()
        return result


def test_a_line_never_counts_records_whose_offsets_it_does_not_count(
    ready: Scenario, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Everything is committed between the two looks of one reading: at the positions, then at the receipts."""
    caplog.set_level(logging.INFO)
    viewed, done = threading.Event(), threading.Event()
    view, receipts = KafkaLedger.view, KafkaLedger.receipts

    def viewing(ledger: KafkaLedger) -> Any:
        read = view(ledger)
        if threading.current_thread().name == "progress":
            viewed.set()
        return read

    def reading(ledger: KafkaLedger, wanted: Any) -> Any:
        if threading.current_thread().name == "progress":
            assert done.wait(60)
        return receipts(ledger, wanted)

    monkeypatch.setattr(watching, "LOG_EVERY", 0.0)
    monkeypatch.setattr(KafkaLedger, "view", viewing)
    monkeypatch.setattr(KafkaLedger, "receipts", reading)
    report = ready.run(Waiting(viewed, done))
    assert report.outcome == "done", report.table()
    assert lines(caplog) and all("400 records" in line and " 0%" not in line for line in lines(caplog)), lines(caplog)


def test_what_an_earlier_run_copied_is_not_counted_as_this_one_s(ready: Scenario) -> None:
    assert ready.run().outcome == "done"
    ready.source.produce(ready.topic, numbered(50, 300), 0)
    assert ready.run().outcome == "done"
    last = stored(ready)
    assert last is not None and (last.ranges, last.offsets, last.records) == (1, 50, 50)


def test_an_open_transaction_in_the_ledger_does_not_hold_up_the_run(ready: Scenario) -> None:
    """The reader that follows the ledger reads to the last stable offset, and does not wait for a later one."""
    ready.run()
    target = ready.bare_run().clusters.target
    target.ledger.view()
    other = ready.target.transactional()
    other.begin_transaction()
    for partition in range(16):
        other.produce("kafka-replication.positions", b"x", b"[]", partition)
        other.produce("kafka-replication.receipts", b"x", b"[]", partition)
    assert other.flush(30) == 0
    try:
        with target.follower()() as follower:
            assert follower.view().positions.keys() == {ready.key(0), ready.key(1)}
            assert len(follower.receipts({ready.key(0): None}).all(ready.key(0))) == 1
    finally:
        other.abort_transaction(30)


def test_who_shows_the_progress_gets_it_instead_of_the_log(ready: Scenario, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    shown: list[Progress] = []
    run = replace(open_run(ready.replication(), ready.connections, ready.store, "shown"), show=shown.append)
    assert runner.execute(run, InProcess(), Request()).outcome == "done"
    assert shown[-1].records == 400 and not lines(caplog)


def test_a_progress_that_cannot_be_read_disturbs_no_run(
    ready: Scenario, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watching, "PAUSE", 0.01)
    asked: list[int] = []

    def fail(*_: object) -> None:
        asked.append(1)
        raise Unreachable("the target is away", "wait")

    def follower(ledger: KafkaLedger) -> Callable[..., None]:
        return fail

    monkeypatch.setattr(KafkaLedger, "follower", follower)
    assert ready.run(InProcess(then=lambda _: wait_until(lambda: len(asked) > 3))).outcome == "done"
    warned = [record.getMessage() for record in caplog.records if "progress" in record.getMessage()]
    assert len([text for text in warned if "the target is away" in text]) == 1
    assert stored(ready) is None


def test_a_reader_that_hangs_is_left_behind(ready: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its job ends without it, and it stores nothing afterwards."""
    monkeypatch.setattr(watching, "PATIENCE", 0.1)
    inside, go_on = threading.Event(), threading.Event()
    view = KafkaLedger.view

    def hang(ledger: KafkaLedger) -> LedgerView:
        if threading.current_thread().name == "progress":
            inside.set()
            go_on.wait()
        return view(ledger)

    monkeypatch.setattr(KafkaLedger, "view", hang)
    assert ready.run(InProcess(then=lambda _: wait_until(inside.is_set))).outcome == "done"
    go_on.set()
    for thread in threading.enumerate():
        if thread.name == "progress":
            thread.join()
    assert stored(ready) is None


def test_the_stored_progress_says_when_it_was_read(ready: Scenario) -> None:
    ready.run()
    text = ready.store.runs(ready.name)[0].progress
    assert text is not None
    assert json.loads(text)["at"].endswith("Z") and json.loads(text)["percent"] == 100


def status(scene: Scenario) -> dict[str, Any]:
    code, out, err = command(scene, "status", "--json")
    assert code == 0, err
    return dict(json.loads(out))


def test_status_shows_the_run_that_is_at_work(ready: Scenario) -> None:
    seen: list[dict[str, Any]] = []

    def look() -> None:
        awaited(ready, lambda progress: progress.records > 0)
        seen.append(status(ready)["running"])
        code, out, err = command(ready, "status")
        assert code == 0, err
        assert out.startswith(f"run {ready.store.runs(ready.name)[0].run_id}: 0 of 2 ranges done, 400 records, ")

    assert ready.run(after_copy(look)).outcome == "done"
    [running] = seen
    assert running["run_id"] == ready.store.runs(ready.name)[0].run_id
    assert (running["progress"]["ranges"], running["progress"]["records"]) == (2, 400)
    assert status(ready)["running"] is None


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Processes inherit that SIGINT ends them, also where it is ignored here, as it is for what a shell runs with ``&``."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_status_can_be_watched_until_it_is_interrupted(ready: Scenario) -> None:
    process = cli(ready, yaml.safe_dump(ready.document()), ready.source.bootstrap, "status", "--watch")
    assert process.stdout is not None
    shown = 0
    while shown < 2:  # twice, so that it goes on by itself
        line = process.stdout.readline()
        assert line, process.communicate()
        shown += line.startswith(f"{ready.topic}-1 ")
    process.send_signal(signal.SIGINT)
    code, _, err = ended(process)
    assert code == 0, err


def test_watching_is_not_for_json(ready: Scenario) -> None:
    code, _, err = command(ready, "status", "--watch", "--json")
    assert code == 2 and "--watch" in err
