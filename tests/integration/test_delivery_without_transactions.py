"""A target whose brokers offer no transactions: every profile but ``exactly_once`` works there."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from stack.kafka_cluster import KafkaCluster
from tests.support.children import copy_process, end_of
from tests.support.clusters import Brokers, started
from tests.support.scenario import Cluster, Scenario, numbered

WITHOUT = {"transaction.state.log.replication.factor": "3"}  # of one broker: no coordinator can ever be found


@pytest.fixture
def scene(source_cluster: Brokers, stack_folder: Path, tmp_path: Path) -> Iterator[Scenario]:
    cluster = KafkaCluster("without-transactions", stack_folder, extra=WITHOUT)
    with started(cluster):
        made = Scenario(Cluster(source_cluster.bootstrap), Cluster(cluster.bootstrap), tmp_path)
        yield made
        made.store.close()


@pytest.mark.slow
def test_a_target_without_transactions_is_copied_to_and_what_a_dead_copier_left_is_counted(scene: Scenario) -> None:
    scene.settings |= {"delivery": "at_least_once", "copy": {"chunk_records": 100}}
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(500))
    assert end_of(copy_process(scene, scene.copy_job(), "P2:6")) == -signal.SIGKILL
    report = scene.run()
    assert report.outcome == "done", report.table()
    found = scene.check()
    assert not (found.lost or found.altered or found.foreign or found.reordered), found
    assert len(found.doubled) == sum(line.duplicates for line in report.ranges) == 100
    assert scene.watermark() == 500
    scene.idle_run()
    assert "__transaction_state" not in scene.target.admin.list_topics(timeout=30).topics
