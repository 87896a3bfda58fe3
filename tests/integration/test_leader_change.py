"""The source's partition gets another leader while it is copied: the run goes on with the new one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_replication.copying.engine import CopyResult, CopyTask
from kafka_replication.copying.protocol import Copier
from stack.kafka_cluster import Broker, KafkaCluster
from tests.support.clusters import Brokers
from tests.support.jobs import InProcess
from tests.support.scenario import Cluster, Scenario, numbered, only
from tests.support.waiting import wait_until


@pytest.fixture
def scene(target3: KafkaCluster, target_cluster: Brokers, tmp_path: Path) -> Iterator[Scenario]:
    """Its source has three brokers."""
    made = Scenario(Cluster(target3.bootstrap), Cluster(target_cluster.bootstrap), tmp_path)
    yield made
    made.store.close()


def leader(scene: Scenario, cluster: KafkaCluster) -> Broker:
    found = scene.source.admin.list_topics(scene.topic, timeout=30).topics[scene.topic].partitions[0].leader
    return cluster.broker(found - 1)


@pytest.mark.slow  # a row of the faults
def test_a_source_whose_leader_changes_in_mid_copy_is_read_on(
    scene: Scenario, target3: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.source.create(scene.topic, replicas=3)
    scene.source.produce(scene.topic, numbered(3_000), acks="all")
    old = leader(scene, target3)
    at_work, stopped = Copier.copy, list[Broker]()

    def stop_leader(task: CopyTask, result: CopyResult) -> None:
        if not stopped:
            stopped.append(old)
            old.stop()

    def copy(copier: Copier, task: CopyTask) -> CopyResult:
        copier.progress = stop_leader
        return at_work(copier, task)

    monkeypatch.setattr(Copier, "copy", copy)
    try:
        report = scene.run(InProcess())
        assert stopped and leader(scene, target3).node_id != old.node_id
    finally:
        old.start()
    assert report.outcome == "done", report.table()
    assert only(report).copied == 3_000
    scene.assert_copied()
    wait_until(lambda: scene.source.partitions(scene.topic) == 1)
