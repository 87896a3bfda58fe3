"""A source whose disk lost its tail and that goes on: what was copied differs from what it holds now, however long it has grown."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from kafka_replication.kafka.batch_scan import BatchScan
from kafka_replication.kafka.callbacks import Throttling
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.planning.backfill_request import parse
from stack.kafka_cluster import KafkaCluster
from tests.support import whole_runs
from tests.support.audits import audit
from tests.support.damage import forgotten
from tests.support.jobs import InProcess
from tests.support.scenario import Scenario, numbered, only, send
from tests.support.waiting import wait_until


def settle(scene: Scenario) -> None:
    wait_until(lambda: scene.source.is_settled([TopicPartition(scene.topic, 0)]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "transactional",
    [pytest.param(False, id="plain records"), pytest.param(True, id="a range that ends in a marker")],
)
def test_one_that_has_grown_past_the_position_is_named(
    own_source_scene: Scenario, own_cluster: KafkaCluster, transactional: bool
) -> None:
    scene = own_source_scene
    write: Callable[..., None] = scene.source.transaction if transactional else scene.source.produce
    scene.source.create(scene.topic)
    write(scene.topic, numbered(60))
    with forgotten(scene, own_cluster):
        write(scene.topic, numbered(40, 60))
        settle(scene)
        assert only(scene.run()).copied == 100
    write(scene.topic, numbered(20, 1_000))
    settle(scene)
    audited = audit(scene.bare_run())
    assert audited.outcome == "failed" and "the source ends at 8" in audited.text(), audited.text()
    write(scene.topic, numbered(60, 1_020))
    settle(scene)
    report = scene.run()
    assert report.outcome == "failed" and "truncated below offset" in (only(report).error or ""), report.table()
    assert scene.watermark() == scene.position().next_offset
    assert audit(scene.bare_run()).outcome == "differs"


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["record", "batch"])
def test_older_offsets_are_not_copied_from_it_either(
    own_source_scene: Scenario, own_cluster: KafkaCluster, engine: str
) -> None:
    """Copies that are gone would be copied again from offsets that have other records now."""
    scene = own_source_scene
    scene.settings |= {"copy": {"engine": engine}}
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(60))
    with forgotten(scene, own_cluster):
        scene.source.produce(scene.topic, numbered(40, 60))
        assert only(scene.run()).copied == 100
    scene.source.produce(scene.topic, numbered(80, 1_000))
    scene.target.delete_before(scene.topic, 0, 100)
    request = parse(scene.replication(), topics=[scene.topic], from_=50, until=100)
    report = whole_runs.backfill(scene.replication(), scene.connections, scene.store, InProcess(), request)
    assert report.outcome == "failed" and "truncated below offset 100" in (only(report).error or ""), report.table()
    assert scene.target.size(scene.topic) == 101


@pytest.mark.slow
def test_one_whose_last_stable_offset_went_back_is_named(own_source_scene: Scenario, own_cluster: KafkaCluster) -> None:
    """It lost the marker of a transaction: nothing after its first record can ever be read again."""
    scene = own_source_scene
    scene.source.create(scene.topic)
    somebody = scene.source.transactional()
    somebody.begin_transaction()
    send(somebody, scene.topic, numbered(60))
    with forgotten(scene, own_cluster):
        somebody.commit_transaction(60)
        scene.source.produce(scene.topic, numbered(40, 60))
        settle(scene)
        assert only(scene.run()).copied == 100
    scene.source.produce(scene.topic, numbered(80, 1_000))
    report = scene.run()
    assert report.outcome == "failed" and "the source ends at 0, 101 offsets below the position 101" in (
        only(report).error or ""
    )


def test_a_reader_of_batches_is_told_of_all_that_it_passes(scene: Scenario) -> None:
    """Also of what no reader sees: a log may be cut there, too."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(10), linger_ms=500)
    scene.source.transaction(scene.topic, numbered(5), abort=True)
    scene.source.produce(scene.topic, numbered(5, 10), linger_ms=500)
    scan = BatchScan(
        {"bootstrap.servers": scene.source.bootstrap}, TopicPartition(scene.topic, 0), 30.0, Throttling("", "")
    )
    passed = list[tuple[int, int]]()
    scan.passing = lambda epoch, until: passed.append((epoch, until))
    with closing(scan):
        assert sum(batch.count for batch in scan.visible(OffsetRange(0, 21))) == 15
    assert {15, 16, 21} <= {until for _, until in passed} and {epoch for epoch, _ in passed} == {0}
