"""A target that loses the end of its log while a run is at work: later runs copy that again, or say what is lost.

A run halts at a failpoint, where its broker is killed, loses the end of the partition's log, and is started again. What
the run then leaves behind makes the log longer, aborted records and their marker, too.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from kafka_replication.model.errors import ReplicationError
from kafka_replication.reporting.run import RunReport
from kafka_replication.runs import steps
from kafka_replication.runtime import failpoints
from stack.kafka_cluster import KafkaCluster
from tests.support.checker import compare, read
from tests.support.damage import lose_from
from tests.support.jobs import InProcess
from tests.support.scenario import ALL, Scenario, numbered
from tests.support.waiting import wait_until

COPIED = 200  # records in four chunks of 50, so that each has a marker behind it: the log ends at 204
MARKER = 203  # offset of the last one
MIDDLE = 102  # first record of the third chunk
RUNS = 6  # after which nothing may be left to do


def lose_at(patch: pytest.MonkeyPatch, scene: Scenario, cluster: KafkaCluster, point: str, offset: int) -> list[int]:
    """The next run that reaches the point loses the end of the target. Where the log then ended comes into the list."""
    broker, ends = cluster.brokers[0], list[int]()

    def lose() -> None:
        # The marker of a chunk is written some time after its commit was answered.
        wait_until(lambda: scene.is_settled(0))
        broker.kill()
        ends.append(lose_from(broker.data, scene.topic, 0, offset))
        broker.start()

    failpoints.forget()
    patch.setenv(failpoints.VARIABLE, point)
    patch.setattr(failpoints, "die", lose)
    return ends


def assert_honest(scene: Scenario, report: RunReport, partitions: int = 1) -> None:
    """A run that fails has said so. One that says that all is done has every record of the source on the target."""
    if report.outcome == "failed":
        return
    there = [record for _, record in read(scene.target.bootstrap, scene.topic, 0)]
    logs = [read(scene.source.bootstrap, scene.topic, number) for number in range(partitions)]
    for number, log in enumerate(logs):
        wanted = [record for _, record in log]
        own = {*wanted}
        found = compare(wanted, [record for record in there if record in own])
        assert found.clean, f"{report.outcome}, but source partition {number}: {found}\n{report.table()}"
    assert len(there) == sum(map(len, logs))


def until_quiet(scene: Scenario, partitions: int = 1) -> None:
    """Runs, as a scheduler starts them, until one finds nothing to do; each of them is honest."""
    tables = []
    for _ in range(RUNS):
        report = scene.run()
        assert_honest(scene, report, partitions)
        if report.outcome == "nothing_to_do":
            return
        tables.append(report.table())
    pytest.fail(f"not healed by {RUNS} runs\n{tables[-1]}")


def copied(scene: Scenario, more: int, copy: dict[str, Any]) -> None:
    scene.settings["copy"] = {"chunk_records": 50, **copy}
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(COPIED))
    assert scene.run().outcome == "done" and scene.watermark() == COPIED
    scene.source.produce(scene.topic, numbered(more, COPIED))


slow = pytest.mark.slow


@pytest.mark.parametrize(
    ("engine", "offset", "more"),
    [
        pytest.param("record", MIDDLE, 200, id="record: the attempt is longer than what is lost", marks=slow),
        pytest.param("record", MIDDLE, 60, id="record: the attempt is shorter", marks=slow),
        pytest.param("record", MARKER, 200, id="record: the marker alone", marks=slow),
        pytest.param("batch", MIDDLE, 200, id="batch: the attempt is longer than what is lost", marks=slow),
        pytest.param("batch", MIDDLE, 60, id="batch: the attempt is shorter", marks=slow),
        pytest.param("batch", MARKER, 200, id="batch: the marker alone", marks=slow),
    ],
)
def test_before_the_first_append(
    own_scene: Scenario, own_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch, engine: str, offset: int, more: int
) -> None:
    copied(own_scene, more, {"engine": "record"})  # the other one takes all 200 in one chunk
    own_scene.settings["copy"] = {"chunk_records": 500, "engine": engine}
    with monkeypatch.context() as patch:
        ends = lose_at(patch, own_scene, own_cluster, "T1", offset)
        assert_honest(own_scene, own_scene.run())
    assert ends == [offset]
    until_quiet(own_scene)


@slow
def test_no_other_engine_goes_on_behind_it(
    own_scene: Scenario, own_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all defaults, and a range that is long enough for the batch engine."""
    copied(own_scene, 60_000, {})
    own_scene.settings["copy"] = {"chunk_records": 50_000, "engine": "auto"}
    with monkeypatch.context() as patch:
        ends = lose_at(patch, own_scene, own_cluster, "T1", MIDDLE)
        assert_honest(own_scene, own_scene.run())
    assert ends == [MIDDLE]
    until_quiet(own_scene)


@pytest.mark.parametrize(
    ("more", "offset"),
    [
        pytest.param(200, MIDDLE, id="its attempt is longer than what is lost", marks=slow),
        pytest.param(20, MIDDLE, id="its attempt is shorter"),
        pytest.param(200, 152, id="the marker alone, so that the chunk before it stays open", marks=slow),
    ],
)
def test_no_other_source_partition_covers_it(
    own_scene: Scenario, own_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch, more: int, offset: int
) -> None:
    """Two of them write to one target partition. The one that still has work ends below what the other one loses."""
    scene = own_scene
    scene.settings |= {"partitioning": "by_key", "target_topics": {"partitions": 1}, "copy": {"chunk_records": 50}}
    scene.source.create(scene.topic, 2)
    scene.source.produce(scene.topic, numbered(50, 1_000), 1)
    assert scene.run().outcome == "done"
    scene.source.produce(scene.topic, numbered(100), 0)
    assert scene.run().outcome == "done"
    scene.source.produce(scene.topic, numbered(more, 2_000), 1)
    scene.settings["copy"] = {"chunk_records": 500}
    with monkeypatch.context() as patch:
        ends = lose_at(patch, scene, own_cluster, "T1", offset)
        assert_honest(scene, scene.run(), 2)
    assert ends == [offset]
    until_quiet(scene, 2)


@pytest.mark.parametrize(
    ("point", "offset"),
    [
        pytest.param("P3:2", 101, id="the marker of a chunk that this run has committed"),
        pytest.param("T1", MIDDLE, id="what earlier runs have verified", marks=slow),
        pytest.param("T1", MARKER, id="the last marker of earlier runs", marks=slow),
    ],
)
@pytest.mark.parametrize(
    ("tries", "resumes"),
    [
        pytest.param(1, False, marks=slow),
        (2, True),
        pytest.param(2, False, marks=slow),
        pytest.param(3, True, marks=slow),
    ],
)
def test_a_task_that_is_tried_again_with_the_same_plan(
    own_scene: Scenario,
    own_cluster: KafkaCluster,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
    offset: int,
    tries: int,
    resumes: bool,
) -> None:
    """Airflow calls ``replicate`` with the stored plan, and again, when it looks first; not even without that look
    anything is hidden. What a run that reports done has not shown is lost."""
    scene = own_scene
    copied(scene, COPIED, {"engine": "record"})
    if point == "T1":
        scene.settings["copy"]["chunk_records"] = 500
    else:
        offset += COPIED + 4
    run = scene.bare_run("tried-again")
    plan, done = steps.prepare(run, ALL), steps.NotDone()

    with monkeypatch.context() as patch:
        ends = lose_at(patch, scene, own_cluster, point, offset)
        for number in range(tries):
            with suppress(ReplicationError):
                plan = steps.resumed(run, plan) if number and resumes else plan
                done = steps.replicate(run, plan, InProcess()).not_done
    assert ends == [offset]
    assert_honest(scene, steps.report(run, plan, done))
    until_quiet(scene)
