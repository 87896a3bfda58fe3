"""What one run after the other copies, and what it leaves alone."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from kafka_replication.model.errors import PreflightFailed
from kafka_replication.planning.backfill_request import parse
from kafka_replication.reporting.run import RunReport
from kafka_replication.runs import leasing, steps
from kafka_replication.runs.run import Request
from kafka_replication.store import open_store
from tests.support import whole_runs
from tests.support.checker import high_watermark, read
from tests.support.jobs import Gate, InProcess, after_copy, copies
from tests.support.leases import holder_of
from tests.support.scenario import ALL, Rec, Scenario, numbered, only
from tests.support.waiting import SAFETY


def test_second_run_is_idle_and_a_later_one_copies_what_is_new(scene: Scenario) -> None:
    scene.source.create(scene.topic, 2)
    scene.source.produce(scene.topic, numbered(1_000))
    launcher = InProcess()
    assert scene.run(launcher).outcome == "done"
    assert [len(copies(job)) for job in launcher.jobs] == [1], "one job copies and reads back"
    scene.idle_run()
    scene.source.produce(scene.topic, numbered(5, 1_000))
    report = scene.run()
    assert [(each.range.from_, each.range.until, each.copied, each.copied_before) for each in report.ranges] == [
        (1_000, 1_005, 5, 0)
    ]
    scene.assert_copied(0, 1)
    scene.idle_run()


def test_max_records_per_run_bounds_the_span(scene: Scenario) -> None:
    scene.source.create(scene.topic, 2)
    scene.source.produce(scene.topic, numbered(250))
    scene.source.produce(scene.topic, numbered(90), 1)
    for copied, watermarks in (((100, 90), (100, 90)), ((100, None), (200, 90)), ((50, None), (250, 90))):
        report = scene.run(max_records_per_run=100)
        assert report.outcome == "done", report.table()
        assert (
            tuple(next((r.copied for r in report.ranges if r.key.source.partition == p), None) for p in range(2))
            == copied
        )
        assert (scene.watermark(0), scene.watermark(1)) == watermarks
    scene.assert_copied(0, 1)
    scene.idle_run(max_records_per_run=100)


def test_topics_filter(scene: Scenario) -> None:
    other = f"{scene.name}.other"
    for topic in (scene.topic, other):
        scene.source.create(topic)
        scene.source.produce(topic, numbered(10))
    topics = {"include": [f"^{scene.name}[.]"], "rename": "dr.{topic}"}
    report = scene.run(request=Request(topics=(other,)), topics=topics)
    assert [(each.key.source.topic, each.key.target_topic, each.copied) for each in report.ranges] == [
        (other, f"dr.{other}", 10)
    ]
    assert scene.target.partitions(f"dr.{scene.topic}") == 1, "a replication begins as a whole"
    assert high_watermark(scene.target.bootstrap, f"dr.{scene.topic}", 0) == 0
    report = scene.run(topics=topics)
    assert [(each.key.source.topic, each.copied) for each in report.ranges] == [(scene.topic, 10)]
    assert scene.check(target_topic=f"dr.{scene.topic}").clean


def test_until_a_time(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    start = 1_700_000_000_000
    scene.source.produce(scene.topic, [Rec(b"%d" % n, b"v", (), start + 1000 * n) for n in range(30)])
    until = datetime.fromtimestamp((start + 12_000) / 1000, UTC)
    assert only(scene.run(request=Request(until=until))).copied == 12
    assert scene.watermark() == 12
    assert scene.run(request=Request(until=until)).outcome == "nothing_to_do"
    assert only(scene.run()).copied == 18
    scene.assert_copied()


def test_latest_is_resolved_once(scene: Scenario) -> None:
    """An idle first run fixes the start: what arrives before the second run is copied, what was there before is not."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(30))
    scene.idle_run(start_from="latest")
    assert scene.watermark() == 30
    scene.source.produce(scene.topic, numbered(20, 30))
    report = scene.run(start_from="latest")
    assert (only(report).range.from_, only(report).copied) == (30, 20)
    scene.assert_copied(from_=30)


def test_start_from_a_time(scene: Scenario) -> None:
    scene.source.create(scene.topic, 2)
    scene.source.produce(scene.topic, numbered(30))  # one millisecond apart
    report = scene.run(start_from="2023-11-14T22:13:20.010Z")
    assert (only(report).range.from_, only(report).copied) == (10, 20)
    scene.assert_copied(from_=10)
    assert scene.watermark(1) == 0


def test_partition_added_later_starts_at_its_beginning(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.idle_run(start_from="latest")
    scene.source.grow(scene.topic, 2)
    scene.source.produce(scene.topic, numbered(40), 1)
    refused = scene.run(start_from="latest", target_topics={"partitions": "refuse"})
    assert refused.outcome == "failed" and "kafka-topics.sh --alter" in only(refused, 1).remedy
    report = scene.run(start_from="latest")
    assert (only(report, 1).range.from_, only(report, 1).copied) == (0, 40)
    scene.assert_copied(1)


def test_emptied_store_is_rebuilt_from_the_ledger(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(60))
    scene.run()
    scene.store.close()
    shutil.rmtree(scene.folder)
    scene.store = open_store(scene.store_url)
    assert scene.watermark() is None
    scene.idle_run()
    assert scene.watermark() == 60
    scene.assert_copied()


def test_unknown_topic_is_named(scene: Scenario) -> None:
    with pytest.raises(PreflightFailed, match=f"unknown source topic {scene.topic}"):
        scene.run()
    with pytest.raises(PreflightFailed, match="no topic of the source is selected"):
        scene.run(topics={"include": [f"^{scene.name}-nothing"]})


def test_two_runs_at_once(scene: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second waits for the first; one that may not wait leaves the topic to it, and says so."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(100))
    gate, reports = Gate(), list[RunReport]()
    first = threading.Thread(target=lambda: reports.append(scene.run(gate)))
    first.start()
    try:
        assert gate.inside.wait(SAFETY)
        holder = holder_of(scene.store, scene.name)
        assert holder is not None
        with monkeypatch.context() as impatience:
            impatience.setattr(leasing, "WAIT", 0)
            impatient = scene.run()
        assert (impatient.outcome, impatient.ranges) == ("done", ())
        assert [note.startswith(f"{scene.topic} was left to {holder.owner} ") for note in impatient.notes] == [True]
        second = threading.Thread(target=lambda: reports.append(scene.run()))
        second.start()
    finally:
        gate.opened.set()
        first.join(SAFETY)
    second.join(SAFETY)
    assert [each.outcome for each in reports] == ["done", "nothing_to_do"]
    scene.assert_copied()
    assert len(read(scene.target.bootstrap, scene.topic, 0)) == 100


def test_a_run_that_lost_its_lease_while_it_verified_takes_nothing_back(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(100))
    sleeper = scene.bare_run("sleeper")  # without a lease: nothing but the fencing keeps it from writing

    def meanwhile() -> None:
        scene.source.produce(scene.topic, numbered(100, 100))
        assert scene.run().outcome == "done"

    steps.replicate(sleeper, steps.prepare(sleeper, ALL), after_copy(meanwhile))
    assert str(scene.bare_run().view().of(scene.key(), 1).verified.coverage) == "[0, 200)"
    assert scene.watermark() == 200


def test_what_was_only_counted_is_never_called_digested(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    levels = []
    for level in ("digest", "count", "digest"):
        scene.source.produce(scene.topic, numbered(10))
        scene.run(verify={"level": level})
        levels.append(scene.bare_run().view().verified[scene.key()].level)
    assert levels == ["digest", "count", "count"]


def test_a_run_that_succeeded_is_planned_again_once_its_plan_is_dropped(scene: Scenario) -> None:
    """As when a DAG run of yesterday is cleared: nothing is copied twice, and what came since is copied."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(100))
    first = scene.run()
    with closing(sqlite3.connect(scene.folder / "store.db")) as db, db:
        db.execute("UPDATE kafka_replication_runs SET finished_at = finished_at - 4000000")
    scene.store.prune(scene.name, 90 * 86_400)
    run = scene.bare_run(first.run_id)
    assert run.stored_plan() is None
    scene.source.produce(scene.topic, numbered(20, 100))
    made = steps.prepare(run, Request())
    assert [str(planned.copy) for planned in made.to_copy] == ["[100, 120)"]
    stored = scene.store.run(first.run_id)
    assert stored is not None
    assert (stored.state, run.stored_plan()) == ("planned", made)
    assert steps.prepare(run, Request()) == made


def test_the_report_says_why_the_short_last_slice_of_a_backfill_has_another_engine(scene: Scenario) -> None:
    scene.settings["max_records_per_run"] = 5_000
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, [replace(record, value=b"x" * 40) for record in numbered(5_100)], linger_ms=500)
    request = parse(scene.replication(), topics=[scene.topic], from_=0, until=5_100)
    line = only(whole_runs.backfill(scene.replication(), scene.connections, scene.store, InProcess(), request))
    assert (line.engines, line.begun and line.begun.engine) == (("batch/1", "record/1"), "batch")
    [turn] = line.turns
    assert (turn.engine, turn.range.from_, turn.why) == ("record/1", 5_000, "it has fewer than 5,000 offsets")
