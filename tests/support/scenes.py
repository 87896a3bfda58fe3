"""Fixtures: a scenario for each test, on the session's clusters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_replication.ledger.entries import RECEIPTS
from stack.kafka_cluster import KafkaCluster
from tests.support.clusters import Brokers, shared
from tests.support.scenario import Cluster, Scenario


@pytest.fixture(scope="session")
def clusters(source_cluster: Brokers, target_cluster: Brokers) -> tuple[Cluster, Cluster]:
    return Cluster(source_cluster.bootstrap), Cluster(target_cluster.bootstrap)


@pytest.fixture
def scene(clusters: tuple[Cluster, Cluster], tmp_path: Path) -> Iterator[Scenario]:
    made = Scenario(*clusters, tmp_path)
    yield made
    made.store.close()


@pytest.fixture
def source_data(source_cluster: Brokers, stack_folder: Path) -> Path:
    """The folder of the shared source's only broker. A test changes nothing there but what belongs to its own topics."""
    (cluster,) = shared(stack_folder, "source")
    if cluster.bootstrap != source_cluster.bootstrap:
        pytest.skip("the source's disk is not here")
    return cluster.brokers[0].data


@pytest.fixture
def own_scene(source_cluster: Brokers, own_cluster: KafkaCluster, tmp_path: Path) -> Iterator[Scenario]:
    """Its target is a broker that tests may kill, and whose ledger they may delete."""
    made = Scenario(Cluster(source_cluster.bootstrap), Cluster(own_cluster.bootstrap), tmp_path)
    if made.target.partitions(RECEIPTS):  # an earlier test may have left it as one that is never deleted from
        made.target.set(RECEIPTS, cleanup_policy="compact,delete")
    yield made
    made.store.close()


@pytest.fixture
def own_source_scene(own_cluster: KafkaCluster, target_cluster: Brokers, tmp_path: Path) -> Iterator[Scenario]:
    """Its source is a broker that tests may kill."""
    made = Scenario(Cluster(own_cluster.bootstrap), Cluster(target_cluster.bootstrap), tmp_path)
    yield made
    made.store.close()
