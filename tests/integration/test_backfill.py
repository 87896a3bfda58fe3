"""Backfills between real clusters: what they copy, what they leave alone, and what they leave behind when they die."""

from __future__ import annotations

import json
import logging
import signal
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import BadInput, Busy, Refused, Unreachable
from kafka_replication.model.offsets import Coverage, OffsetRange, TopicPartition
from kafka_replication.planning.backfill_plan import BackfillPlan
from kafka_replication.planning.backfill_request import BackfillRequest, parse
from kafka_replication.reporting import backfill as backfill_report
from kafka_replication.reporting.run import RunReport
from kafka_replication.runs import backfill as backfilling
from kafka_replication.runs import leasing
from kafka_replication.runs.repair import Approval, approve
from kafka_replication.runs.run import LeasedRun
from kafka_replication.spark.launcher import Launcher
from tests.support import whole_runs
from tests.support.checker import read
from tests.support.children import end_of, spawn
from tests.support.jobs import Gate, InProcess, after_copy, copies, no_launch
from tests.support.leases import holder_of
from tests.support.scenario import Scenario, numbered, only
from tests.support.waiting import SAFETY

START = 1_700_000_000_000  # the first numbered record's timestamp; the others follow, a millisecond apart


@dataclass
class Backfills:
    """Backfills of one scenario's topic."""

    scene: Scenario
    settings: dict[str, Any] = field(default_factory=dict)

    def request(self, from_: object, until: object, **more: Any) -> BackfillRequest:
        return parse(
            self.scene.replication(**self.settings),
            **{"topics": [self.scene.topic], "from_": from_, "until": until, **more},
        )

    def run(self, from_: object, until: object, launcher: Launcher | None = None, **more: Any) -> RunReport:
        scene, launch = self.scene, launcher or InProcess()
        request = self.request(from_, until, **more)
        return whole_runs.backfill(scene.replication(**self.settings), scene.connections, scene.store, launch, request)

    def idle(self, from_: object, until: object, **more: Any) -> None:
        report = self.run(from_, until, no_launch, **more)
        assert report.outcome == "nothing_to_do", report.table()

    def look(self, from_: object, until: object, **more: Any) -> BackfillPlan:
        run = self.scene.bare_run().of(self.scene.replication(**self.settings))
        return backfilling.preview(run, self.request(from_, until, **more))


@pytest.fixture
def backfills(scene: Scenario) -> Backfills:
    return Backfills(scene)


def test_a_backfill_below_the_start_copies_once_and_leaves_live_copying_alone(
    scene: Scenario, backfills: Backfills
) -> None:
    backfills.settings = {"start_from": "latest"}
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(300))
    scene.idle_run(start_from="latest")
    scene.source.produce(scene.topic, numbered(100, 300))
    assert only(scene.run(start_from="latest")).copied == 100
    assert scene.watermark() == 400

    report = backfills.run(50, 150)
    assert (report.outcome, only(report).copied, only(report).digest_ok) == ("done", 100, True), report.table()
    assert (scene.watermark(), scene.position().next_offset) == (400, 400)
    backfills.idle(50, 150)
    assert only(backfills.run(0, 350)).copied == 200
    backfills.idle(0, 400)
    scene.idle_run(start_from="latest")

    scene.source.produce(scene.topic, numbered(10, 400))
    assert only(scene.run(start_from="latest")).copied == 10
    assert scene.watermark() == 410
    found = scene.check()
    assert not (found.lost or found.doubled or found.altered or found.foreign), found


def test_to_another_target_topic_and_live_copying_begins_all_the_same(scene: Scenario, backfills: Backfills) -> None:
    backfills.settings = {"start_from": "latest"}
    scene.source.create(scene.topic, 2)
    scene.source.produce(scene.topic, numbered(100))
    scene.source.produce(scene.topic, numbered(50), 1)
    again = f"{scene.name}.again"
    report = backfills.run(20, 40, target_topic=again)
    assert [(each.key.target_topic, each.copied, each.digest_ok) for each in report.ranges] == [(again, 20, True)] * 2
    assert only(backfills.run(10, 100, partitions=[0], target_topic=again)).copied == 70
    backfills.idle(10, 100, partitions=[0], target_topic=again)
    assert scene.target.partitions(scene.topic) == 0, "the replication's own target is not touched"
    assert sorted(each.timestamp - START for _, each in read(scene.target.bootstrap, again, 0)) == list(range(10, 100))

    scene.idle_run(start_from="latest")
    assert (scene.watermark(0), scene.watermark(1)) == (100, 50)
    scene.source.produce(scene.topic, numbered(5, 100))
    assert only(scene.run(start_from="latest")).copied == 5
    assert len(read(scene.target.bootstrap, scene.topic, 0)) == 5


def test_a_target_topic_with_records_of_others_is_refused(scene: Scenario, backfills: Backfills) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(10))
    foreign = f"{scene.name}.foreign"
    scene.target.create(foreign)
    scene.target.produce(foreign, numbered(1))
    with pytest.raises(Refused, match=r"on the target already holds records \(the first at offset 0\)"):
        backfills.run(0, 10, target_topic=foreign)
    assert len(read(scene.target.bootstrap, foreign, 0)) == 1


def test_a_dry_run_answers_and_changes_nothing(
    scene: Scenario, backfills: Backfills, caplog: pytest.LogCaptureFixture
) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(300))
    made = backfills.look(100, 250)
    assert (scene.target.partitions(scene.topic), scene.store.runs(scene.name)) == (0, [])
    [row] = backfill_report.document(made).partitions
    assert (str(row.to_copy), row.on_target, row.estimated_records, row.kept_until) == (
        "[100, 250)",
        Coverage(),
        150,
        None,
    )
    assert row.oldest_record == "2023-11-14T22:13:20.100000Z"
    why = "it has fewer than 5,000 offsets"
    assert (row.engine, row.engine_why) == ("record", why)
    by = f"copied by the record engine: 1 partition ({why})"
    assert by in backfill_report.plan_table(made).splitlines()

    with caplog.at_level(logging.INFO):
        scene.run()
    assert f"to be {by}" in caplog.text
    scene.target.set(scene.topic, retention_ms="1000")
    scene.source.produce(scene.topic, numbered(100, 300))
    [row] = backfill_report.document(backfills.look(250, 400)).partitions
    assert (str(row.to_copy), str(row.on_target)) == ("[300, 400)", "[250, 300)")
    assert "RETENTION" in backfill_report.plan_table(backfills.look(250, 400))


def test_times_are_resolved_by_kafka(scene: Scenario, backfills: Backfills) -> None:
    scene.source.create(scene.topic, 2)
    scene.source.produce(scene.topic, numbered(100))
    report = backfills.run("2023-11-14T22:13:20.010Z", "2023-11-14T22:13:20.0305Z")
    assert [(each.range.from_, each.range.until, each.copied) for each in report.ranges] == [(10, 31, 21)]


def test_a_range_without_any_offset_creates_nothing(scene: Scenario, backfills: Backfills) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(10))
    backfills.idle("2001-01-01T00:00:00Z", "2002-01-01T00:00:00Z", target_topic=f"{scene.name}.again")
    backfills.idle("2001-01-01T00:00:00Z", "2002-01-01T00:00:00Z")
    assert (scene.target.partitions(scene.topic), scene.target.partitions(f"{scene.name}.again")) == (0, 0)


def test_slices_are_bounded_and_a_backfill_that_died_goes_on(scene: Scenario, backfills: Backfills) -> None:
    backfills.settings = {"max_records_per_run": 40, "start_from": "latest"}
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(200))

    class Died(BaseException): ...

    def die() -> None:
        if len(launcher.jobs) == 2:  # the second slice is copied and not read back
            raise Died

    launcher = after_copy(die)
    with pytest.raises(Died):
        backfills.run(0, 190, launcher)
    assert [sum(each.range.span for each in copies(job)) for job in launcher.jobs] == [40, 40]
    assert str(scene.position().coverage) == "[0, 80)"

    again = InProcess()
    report = backfills.run(0, 190, again)
    assert (report.outcome, only(report).copied, only(report).copied_before) == ("done", 110, 80), report.table()
    assert [each.range.span for job in again.jobs for each in copies(job)] == [40, 40, 30]
    assert scene.check(until=190).clean
    backfills.idle(0, 190)


def test_a_target_that_is_away_between_two_slices_is_waited_for(
    scene: Scenario, backfills: Backfills, monkeypatch: pytest.MonkeyPatch
) -> None:
    backfills.settings = {"max_records_per_run": 40}
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(100))
    view, advance, missing, times = LeasedRun.view, scene.store.advance_many, [0], [0]

    def away(run: LeasedRun) -> LedgerView:
        if missing[0]:
            missing[0] -= 1
            times[0] += 1
            raise Unreachable("the target does not answer", "wait")
        return view(run)

    def advance_and_leave(*arguments: Any) -> Any:
        moved = advance(*arguments)
        missing[0] = 2
        return moved

    monkeypatch.setattr(scene.store, "advance_many", advance_and_leave)
    monkeypatch.setattr(LeasedRun, "view", away)
    assert backfills.run(0, 100).outcome == "done"
    assert times[0] >= 4, "it was away after more than one slice"
    assert scene.check().clean


def test_what_a_dead_backfill_left_unverified_is_verified_by_a_live_run(scene: Scenario, backfills: Backfills) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(100))
    scene.run()
    again = f"{scene.name}.again"

    class Died(BaseException): ...

    def die() -> None:
        raise Died

    with pytest.raises(Died):
        backfills.run(30, 60, after_copy(die), target_topic=again)
    launcher = InProcess()
    report = scene.run(launcher)
    assert [copies(job) for job in launcher.jobs] == [[]]
    assert [(each.key.target_topic, str(each.range), each.digest_ok) for each in report.ranges] == [
        (again, "[30, 60)", True)
    ]
    scene.idle_run()


def test_beyond_the_position_and_live_copying_fills_the_hole(scene: Scenario, backfills: Backfills) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(100))
    scene.run(max_records_per_run=20)
    assert only(backfills.run(60, 80)).copied == 20
    assert (scene.watermark(), scene.position().next_offset) == (20, 20)
    report = scene.run()
    assert (only(report).copied, scene.watermark(), scene.position().next_offset) == (60, 100, 100), report.table()
    found = scene.check()
    assert not (found.lost or found.doubled or found.altered or found.foreign), found


def test_what_retention_took_is_refused_unless_it_is_on_the_target(scene: Scenario, backfills: Backfills) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(100))
    scene.run(max_records_per_run=30)
    scene.source.delete_before(scene.topic, 0, 20)
    assert only(backfills.run(0, 50)).copied == 20
    scene.source.delete_before(scene.topic, 0, 70)
    with pytest.raises(Refused, match=r"offsets \[50, 70\) can no longer be read, the log now starts at 70") as refused:
        backfills.run(10, 90)
    assert "from 70" in refused.value.remedy
    assert only(backfills.run(70, 90)).copied == 20


# Live runs die at each of these in `test_kill.py`, and backfills and live runs in any order in `test_backfill_orders.py`.
LATER = ("P0", "P2:2", "P3:1", "P3:3", "P4:1", "P4:2", "P5:1", "P5:2")


@pytest.mark.parametrize("failpoint", ["P1:2", *(pytest.param(each, marks=pytest.mark.slow) for each in LATER)])
def test_a_backfill_killed_anywhere_is_finished_by_the_next_one(scene: Scenario, failpoint: str) -> None:
    scene.settings |= {
        "max_records_per_run": 60,
        "copy": {"chunk_records": 25, "transaction_timeout": 6},
        "start_from": "latest",
    }
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(200))
    scene.idle_run()
    scene.source.produce(scene.topic, numbered(20, 200))
    scene.run()
    places = [
        scene.source.bootstrap,
        scene.target.bootstrap,
        scene.store_url,
        json.dumps(scene.document()),
        scene.topic,
    ]
    assert end_of(spawn("backfill_process", *places, "30", "180", failpoint=failpoint)) == -signal.SIGKILL
    assert end_of(spawn("backfill_process", *places, "0", "170")) == 0
    assert end_of(spawn("backfill_process", *places, "30", "210")) == 0
    assert str(scene.position().coverage) == "[0, 220)"
    assert scene.watermark() == 220
    found = scene.check()
    assert not (found.lost or found.doubled or found.altered or found.foreign), found
    scene.idle_run()


def test_two_backfills_at_once_never_double(
    scene: Scenario, backfills: Backfills, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(100))
    gate, reports = Gate(), list[RunReport]()
    first = threading.Thread(target=lambda: reports.append(backfills.run(10, 60, gate)))
    first.start()
    try:
        assert gate.inside.wait(SAFETY)
        holder = holder_of(scene.store, scene.name)
        assert holder is not None
        with monkeypatch.context() as impatience:
            impatience.setattr(leasing, "WAIT", 0)
            with pytest.raises(Busy, match=holder.owner):
                backfills.run(30, 80)
        second = threading.Thread(target=lambda: reports.append(backfills.run(30, 80)))
        second.start()
    finally:
        gate.opened.set()
        first.join(SAFETY)
    second.join(SAFETY)
    assert [(only(each).copied, each.outcome) for each in reports] == [(50, "done"), (20, "done")]
    assert len(read(scene.target.bootstrap, scene.topic, 0)) == 70


def test_bad_input_starts_nothing(scene: Scenario, backfills: Backfills) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(10))
    for from_, until, more, words in (
        (0, 11, {}, "past the end"),
        (0, 10, {"partitions": [1]}, "has no partition 1"),
        (9, "2001-01-01T00:00:00Z", {}, r"is greater than until \(0\)"),
    ):
        with pytest.raises(BadInput, match=words):
            backfills.idle(from_, until, **more)
    settings = {"topics": {"include": [f"^{scene.name}"]}}
    backfills.settings = settings
    with pytest.raises(BadInput, match="does not exist on the source"):
        backfills.idle(0, 1, topics=[f"{scene.name}.none"])
    assert scene.target.partitions(scene.topic) == 0


def test_a_leader_epoch_of_old_records_does_not_look_like_a_truncation(scene: Scenario, backfills: Backfills) -> None:
    """One broker has one epoch, so this asserts what is stored; tests/unit says what it would do."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(50))
    scene.idle_run(start_from="latest")
    assert scene.position().leader_epoch is None
    backfills.settings = {"start_from": "latest"}
    backfills.run(0, 20)
    assert scene.position().leader_epoch is None


def test_what_another_target_lost_before_it_was_verified_is_given_up_there(
    scene: Scenario, backfills: Backfills
) -> None:
    """Live runs look after it, too; nothing else of them is held up."""
    other = f"{scene.topic}.other"
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(100))
    scene.run()
    backfills.run(0, 50, after_copy(lambda: scene.target.delete_before(other, 0, 20)), target_topic=other)
    scene.source.produce(scene.topic, numbered(10, 100))
    assert scene.run().outcome == "failed"
    assert scene.watermark() == 110
    gap = Approval(
        at=TopicPartition(scene.topic, 0),
        range=OffsetRange(0, 50),
        reason="short retention",
        by="ann",
        target_topic=other,
    )
    assert approve(scene.bare_run("approve"), gap)[1]
    scene.idle_run()


def test_the_remedy_for_another_target_names_it(scene: Scenario, backfills: Backfills) -> None:
    """A reset without it would copy every live record again."""
    other = f"{scene.topic}.other"
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(100))
    backfills.run(0, 50, target_topic=other)
    scene.target.delete(other)
    with pytest.raises(Refused) as refused:
        backfills.run(0, 50, target_topic=other)
    assert f"--target-topic {other}" in refused.value.remedy


def test_into_where_another_topic_is_copied_is_refused(scene: Scenario, backfills: Backfills) -> None:
    other = f"{scene.name}.b"
    backfills.settings = {"topics": {"include": [scene.topic, other]}}
    for topic in (scene.topic, other):
        scene.source.create(topic)
        scene.source.produce(topic, numbered(10))
    with pytest.raises(BadInput, match=f"is where {scene.name} copies '{other}' to"):
        backfills.run(0, 5, target_topic=other)
    assert scene.target.partitions(other) == 0
