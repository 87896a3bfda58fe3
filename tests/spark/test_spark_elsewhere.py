"""Real Spark copies to a real OpenSearch and a real HBase, is killed piece by piece, and the next run completes the copy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.support.checker import read
from tests.support.hbase import HBaseGround
from tests.support.opensearch import OpenSearchGround
from tests.support.scenario import Scenario, numbered
from tests.support.spark_run import KILLS, SparkRun, end_after

PARTITIONS, RECORDS, CHUNK = 3, 400, 100
Target = OpenSearchGround | HBaseGround


def searched(request: pytest.FixtureRequest) -> tuple[OpenSearchGround, dict[str, Any]]:
    ground = OpenSearchGround.of(request.getfixturevalue("opensearch"))
    return ground, {"type": "opensearch", "documents": {"value": "base64"}}


def stored(request: pytest.FixtureRequest) -> tuple[HBaseGround, dict[str, Any]]:
    return HBaseGround(request.getfixturevalue("hbase")), {"type": "hbase"}


KINDS: Mapping[str, Callable[[pytest.FixtureRequest], tuple[Target, dict[str, Any]]]] = {
    "opensearch": searched,
    "hbase": stored,
}


@pytest.fixture
def ground(request: pytest.FixtureRequest, scene: Scenario) -> Target:
    """The target of the scene, whose source has records."""
    ground, target = KINDS[request.param](request)
    scene.client = dict(ground.connection)
    scene.settings["target"] = {"connection": "target", **target}
    scene.source.create(scene.topic, PARTITIONS)
    for partition in range(PARTITIONS):
        scene.source.produce(scene.topic, numbered(RECORDS), partition)
    return ground


def assert_complete(scene: Scenario, ground: Target) -> None:
    for partition in range(PARTITIONS):
        wanted = [
            (offset, (record.timestamp, record.key, record.value, record.headers))
            for offset, record in read(scene.source.bootstrap, scene.topic, partition)
        ]
        found = [
            (offset, (timestamp, key, value, tuple(headers or ())))
            for offset, (_, timestamp, key, value, headers) in ground.visible(scene.topic, partition)
        ]
        assert found == wanted
    assert [scene.watermark(partition) for partition in range(PARTITIONS)] == [RECORDS] * PARTITIONS


def places(ground: Target, topic: str) -> int:
    return sum(len(ground.visible(topic, partition)) for partition in range(PARTITIONS))


@pytest.mark.parametrize("ground", ["opensearch", pytest.param("hbase", marks=pytest.mark.slow)], indirect=True)
def test_spark_copies_and_verifies(scene: Scenario, ground: Target) -> None:
    run = SparkRun(scene)
    report = run.end()
    run.assert_nothing_left()
    assert report["outcome"] == "done", report
    assert sorted((line["partition"], line["copied"], line["digest_ok"]) for line in report["ranges"]) == [
        (partition, RECORDS, True) for partition in range(PARTITIONS)
    ]
    assert report["promise"] == "idempotent"
    assert_complete(scene, ground)
    scene.idle_run()


@pytest.mark.slow
@pytest.mark.parametrize("kill", KILLS)
@pytest.mark.parametrize("ground", ["opensearch", pytest.param("hbase", marks=pytest.mark.slow)], indirect=True)
def test_kill_while_copying(scene: Scenario, ground: Target, kill: Callable[[SparkRun], None]) -> None:
    scene.settings["copy"] = {"chunk_records": CHUNK}
    run = SparkRun(scene, halted=True)
    run.await_reached(lambda: ground.exists(scene.topic) and places(ground, scene.topic) > 2 * CHUNK)
    end_after(run, kill)
    scene.settings["copy"] = {}
    healed = scene.run()
    assert healed.outcome in ("done", "nothing_to_do"), healed.table()
    assert_complete(scene, ground)
    scene.idle_run()
