"""A topic that cannot be used is named. The others are copied, verified and advanced, in the first run, too."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_replication.planning.plan import State
from kafka_replication.runs import steps, target_topics
from kafka_replication.runs.run import Request
from tests.support.scenario import Scenario, numbered


def several(scene: Scenario, *names: str) -> list[str]:
    """Source topics of one partition with ten records each, selected by a pattern."""
    scene.settings |= {"topics": {"include": [f"^{scene.name}[._]"]}}
    topics = [f"{scene.name}.{name}" for name in names]
    for topic in topics:
        scene.source.create(topic)
        scene.source.produce(topic, numbered(10))
    return topics


def failed(scene: Scenario, **more: Any) -> dict[str, str]:
    """The errors of a run by topic. Every other topic is copied, verified and advanced to the end."""
    report = scene.run(**more)
    errors = {line.key.source.topic: line.error or "" for line in report.failed}
    assert all(line.remedy for line in report.failed)
    marks = {key.source.topic: mark.offset for key, mark in scene.store.watermarks(scene.name).items()}
    for line in report.ranges:
        topic = line.key.source.topic
        assert topic in errors or marks[topic] == line.range.until, report.table()
    return errors


def test_a_target_that_replaces_timestamps(scene: Scenario) -> None:
    good, bad = several(scene, "good", "bad")
    scene.target.create(bad, 1, {"message.timestamp.type": "LogAppendTime"})
    errors = failed(scene)
    assert errors.keys() == {bad} and "LogAppendTime" in errors[bad]
    scene.source.produce(good, numbered(5, 10))
    assert failed(scene).keys() == {bad}
    scene.target.set(bad, message_timestamp_type="CreateTime")
    assert scene.run().outcome == "done"
    assert {key.source.topic: mark.offset for key, mark in scene.store.watermarks(scene.name).items()} == {
        good: 15,
        bad: 10,
    }


def test_a_topic_that_is_created_otherwise_than_the_plan_said_stays_empty(
    scene: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bad,) = several(scene, "bad")
    otherwise = {"message.timestamp.type": "LogAppendTime"}
    monkeypatch.setattr(target_topics, "created_config", lambda source, settings: otherwise)
    assert "LogAppendTime" in failed(scene)[bad]
    assert (scene.target.partitions(bad), scene.target.size(bad)) == (1, 0)
    assert scene.bare_run().view().positions == {}


def test_target_topics_that_cannot_be_created(scene: Scenario) -> None:
    """Kafka refuses a name that differs from another only by `.` and `_`, and one that is too long."""
    _, collides = several(scene, "good", "a.b")
    scene.target.create(f"dr.{scene.name}.a_b")
    long = f"{scene.name}.".ljust(249, "x")
    scene.source.create(long)
    scene.settings |= {"topics": {"include": [f"^{scene.name}[.]"], "rename": "dr.{topic}"}}
    errors = failed(scene)
    assert errors.keys() == {collides, long}
    assert f"dr.{collides}" in errors[collides] and "249" in errors[long]
    scene.target.delete(f"dr.{scene.name}.a_b")
    scene.source.delete(long)
    assert scene.run().outcome == "done"


def test_a_named_topic_that_does_not_exist(scene: Scenario) -> None:
    (good,) = several(scene, "good")
    missing = f"{scene.name}.missing"
    scene.settings |= {"topics": {"include": [good, missing]}}
    errors = failed(scene)
    assert errors.keys() == {missing} and "does not exist" in errors[missing]
    scene.source.create(missing)
    scene.source.produce(missing, numbered(3))
    assert scene.run().outcome == "done"
    assert scene.store.watermarks(scene.name)[scene.key(topic=missing)].offset == 3


def test_a_deleted_topic_that_a_pattern_selected_is_noted_once(scene: Scenario) -> None:
    good, gone = several(scene, "good", "gone")
    assert scene.run().outcome == "done"
    assert scene.run(request=Request(topics=(good,))).notes == ()
    scene.source.delete(gone)
    scene.source.produce(good, numbered(5, 10))
    report = scene.run()
    assert report.outcome == "done", report.table()
    assert [gone in note for note in report.notes] == [True]
    assert report.notes[0] in report.table()
    assert scene.idle_run().notes == ()
    plan, _ = steps.preview(scene.bare_run(), Request())
    assert {planned.key.source.topic: planned.state for planned in plan.partitions} == {
        good: State.IN_SYNC,
        gone: State.DELETED,
    }
    assert scene.target.size(gone) > 0
