"""The brokers of a cluster are restarted one after the other, as for an upgrade, while a run copies: it ends as if nothing had
been, and does not have to be run again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from kafka_replication.copying.engine import CopyResult, CopyTask
from kafka_replication.copying.protocol import Copier
from stack.kafka_cluster import KafkaCluster
from tests.support.clusters import Brokers, is_whole
from tests.support.jobs import InProcess
from tests.support.scenario import Cluster, Scenario, numbered
from tests.support.waiting import SAFETY, wait_until

PARTITIONS, CHUNK = 3, 10
RECORDS = 600
PAUSE = 1.0  # seconds after a chunk, for as long as brokers are restarted
LEFT = 10 * CHUNK  # records, which wait until no broker is restarted any more


@pytest.fixture
def scene(
    request: pytest.FixtureRequest,
    source_cluster: Brokers,
    target_cluster: Brokers,
    target3: KafkaCluster,
    tmp_path: Path,
) -> Iterator[Scenario]:
    """The side that is asked for has three brokers, and three replicas of everything."""
    source, target = source_cluster.bootstrap, target_cluster.bootstrap
    source, target = (target3.bootstrap, target) if request.param == "source" else (source, target3.bootstrap)
    made = Scenario(Cluster(source), Cluster(target), tmp_path)
    three = made.source if request.param == "source" else made.target
    three.create(made.topic, replicas=3, assignment=[[1 + (first + n) % 3 for n in range(3)] for first in range(3)])
    if request.param == "target":
        made.source.create(made.topic, PARTITIONS)
    yield made
    made.store.close()


def restarted(cluster: KafkaCluster, brokers: int) -> None:
    """Each with a controlled shutdown, and not before all replicas are in sync again."""
    admin = Cluster(cluster.bootstrap).admin
    for broker in cluster.brokers[:brokers]:
        broker.stop()
        broker.start()
        wait_until(lambda: is_whole(admin, cluster.size))


def passes_unseen(
    scene: Scenario, cluster: KafkaCluster, patch: pytest.MonkeyPatch, engine: str, brokers: int, records: int
) -> None:
    for partition in range(PARTITIONS):
        scene.source.produce(scene.topic, numbered(records), partition, batch_num_messages=CHUNK)
    settings = {"chunk_records": CHUNK, "engine": engine}
    begun, over, at_work = threading.Event(), threading.Event(), Copier.copy

    def restart() -> None:
        assert begun.wait(SAFETY)
        try:
            restarted(cluster, brokers)
        finally:
            over.set()

    def committed(task: CopyTask, result: CopyResult) -> None:
        begun.set()
        over.wait(PAUSE if result.copied < records - LEFT else SAFETY)

    def copy(copier: Copier, task: CopyTask) -> CopyResult:
        copier.progress = committed
        return at_work(copier, task)

    patch.setattr(Copier, "copy", copy)
    with ThreadPoolExecutor(1) as threads:
        restarting: Future[None] = threads.submit(restart)
        report = scene.run(InProcess(at_once=PARTITIONS), copy=settings)
        restarting.result()
    assert report.outcome == "done", report.table()
    assert [line.copied for line in report.ranges] == [records] * PARTITIONS, report.table()
    assert [scene.watermark(partition) for partition in range(PARTITIONS)] == [records] * PARTITIONS
    scene.assert_copied(*range(PARTITIONS))


@pytest.mark.slow  # a row of the faults
@pytest.mark.parametrize("scene", ["target"], indirect=True)
def test_a_broker_is_restarted(scene: Scenario, target3: KafkaCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """For one of a source see `test_leader_change`."""
    passes_unseen(scene, target3, monkeypatch, "record", 1, RECORDS // 3)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["batch", "record"])
@pytest.mark.parametrize("scene", ["source", "target"], indirect=True)
def test_all_brokers_are_restarted(
    scene: Scenario, target3: KafkaCluster, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    passes_unseen(scene, target3, monkeypatch, engine, target3.size, RECORDS)
