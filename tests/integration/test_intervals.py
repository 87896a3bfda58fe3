"""Data intervals on real clusters: each record in one interval, late ones too, and nothing copied again."""

from __future__ import annotations

import random

import pytest

from kafka_replication.kafka import topics
from kafka_replication.model.errors import BadInput, Refused
from kafka_replication.runs.repair import rebuild_store
from kafka_replication.runs.reset import reset_topic
from kafka_replication.runs.run import open_run
from kafka_replication.store import open_store
from tests.support.checker import read
from tests.support.intervals import SETTINGS, at, copied, interval
from tests.support.jobs import InProcess
from tests.support.leases import NoLease
from tests.support.scenario import Scenario


def test_each_interval_copies_its_records_once_and_late_ones_are_in_a_later_one(scene: Scenario) -> None:
    scene.source.create(scene.topic, 2)
    scene.source.produce(scene.topic, [at(-1), at(0), at(0.5), at(1), at(1.9), at(2)])
    assert copied(interval(scene, 0)) == 2
    assert copied(interval(scene, 1)) == 2
    assert [each.range.from_ for each in interval(scene, 1).ranges] == [3], "cleared: the same range"
    scene.source.produce(scene.topic, [at(0.7), at(1.1), at(2.5), at(3.5)])  # two are late: their intervals are over
    assert copied(interval(scene, 2)) == 4, "from 2.0 to before 3.5, with the late ones between them"
    assert copied(interval(scene, 3)) == 1
    assert copied(interval(scene, 4)) == 0
    assert copied(interval(scene, 0)) == 2, "what the run copied, when it is asked again"
    found = scene.check(from_=1)
    assert found.clean, found
    assert scene.watermark() == 10


def test_intervals_in_any_order_tile(scene: Scenario) -> None:
    scene.source.create(scene.topic, 2)
    order, dice = list(range(5)), random.Random(5)
    dice.shuffle(order)
    for turn, minute in enumerate(order):
        scene.source.produce(scene.topic, [at(dice.uniform(0, 5), turn * 10 + n) for n in range(10)], turn % 2)
        assert interval(scene, minute).outcome != "failed"
    for partition in (0, 1):
        held_ = [record.key for _, record in read(scene.target.bootstrap, scene.topic, partition)]
        assert len(held_) == len(set(held_)), "a record is on the target twice"
    ranges = [
        (each.key.source.partition, each.range)
        for minute in range(5)
        for each in scene.store.outcomes(f"scheduled-{minute}")
    ]
    for one in ranges:
        assert not any(one[0] == other[0] and one[1] != other[1] and one[1].intersection(other[1]) for other in ranges)


def test_clearing_a_run_starts_no_spark(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, [at(0.1), at(0.2), at(1)])
    interval(scene, 0)
    launcher = InProcess()
    interval(scene, 0, launcher)
    assert launcher.jobs == []
    assert len(read(scene.target.bootstrap, scene.topic, 0)) == 2


def test_a_partition_that_appears_later_starts_at_its_beginning(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, [at(0.1), at(1.5)])
    interval(scene, 0)
    scene.source.grow(scene.topic, 2)
    scene.source.produce(scene.topic, [at(0.9), at(1.2)], 1)
    scene.settings |= {"target_topics": {"partitions": "refuse"}}
    with pytest.raises(Refused, match="the source 2"):
        interval(scene, 1)
    scene.settings |= {"target_topics": {"partitions": "follow"}}
    assert copied(interval(scene, 1)) >= 2
    interval(scene, 2)
    assert len(read(scene.target.bootstrap, scene.topic, 1)) == 2


def test_a_run_without_an_interval_is_refused_by_name(scene: Scenario) -> None:
    with pytest.raises(BadInput, match=f"replication {scene.name} copies data intervals"):
        scene.run(**SETTINGS)


def test_a_partition_that_appears_while_old_intervals_run_is_copied_from_its_beginning(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, [at(0.1), at(3.5), at(4.5)])
    for minute in (3, 4):
        interval(scene, minute)
    scene.source.grow(scene.topic, 2)
    scene.target.grow(scene.topic, 2)
    scene.source.produce(scene.topic, [at(4.7, 1), at(4.9, 2), at(5.2, 3)], 1)  # interval 4 is over
    assert [copied(interval(scene, minute)) for minute in (0, 5, 6)] == [1, 3, 0]
    assert scene.check(1).clean


def test_late_records_are_not_lost_with_the_store(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, [at(0.1), at(0.5)])
    assert copied(interval(scene, 0)) == 2
    scene.store.close()
    (scene.folder / "store.db").unlink()
    scene.store = open_store(scene.store_url)
    rebuild_store(open_run(scene.replication(**SETTINGS), scene.connections, scene.store, "rebuild").holding(NoLease()))
    scene.source.produce(scene.topic, [at(0.7), at(0.8), at(1.1)])  # two belong to the interval that is over
    assert [copied(interval(scene, minute)) for minute in (1, 2)] == [3, 0]
    assert scene.check().clean


def test_a_topic_that_cannot_be_seen_is_named_before_an_interval_leaves_it_out(
    scene: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if it was deleted, and then restored with the same id."""
    other = f"{scene.name}.other"
    scene.settings |= {"topics": {"include": [scene.topic, other]}}
    for topic in (scene.topic, other):
        scene.source.create(topic)
        scene.source.produce(topic, [at(0.1), at(1.1)])
    assert copied(interval(scene, 0)) == 2
    describe = topics.describe
    with monkeypatch.context() as patch:
        patch.setattr(topics, "describe", lambda admin, names, *more: describe(admin, {*names} - {other}, *more))
        with pytest.raises(Refused, match=f"{other}-0: the source topic or partition is gone"):
            interval(scene, 1)
    assert copied(interval(scene, 1)) == 2


def test_intervals_that_are_cleared_after_a_reset_fill_the_new_topic(scene: Scenario) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, [at(0.1), at(0.5), at(1.1), at(2.1)])
    assert [copied(interval(scene, minute)) for minute in (0, 1)] == [2, 1]
    scene.target.delete(scene.topic)
    reset_topic(
        open_run(scene.replication(**SETTINGS), scene.connections, scene.store, "reset").holding(NoLease()),
        scene.topic,
    )
    assert [copied(interval(scene, minute)) for minute in (0, 1, 2)] == [2, 1, 1]
    assert scene.check().clean
