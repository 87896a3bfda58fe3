"""A scenario for each test, on the session's clusters."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from stack.kafka_cluster import KafkaCluster
from tests.clusters import started
from tests.integration.scenario import Cluster, Scenario


@pytest.fixture(scope="session")
def clusters(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> tuple[Cluster, Cluster]:
    return Cluster(source_cluster.bootstrap), Cluster(target_cluster.bootstrap)


@pytest.fixture(scope="module")
def own_target(stack_folder: Path) -> Iterator[KafkaCluster]:
    """One broker of this module's own, for what would disturb the others."""
    cluster = KafkaCluster(f"own-{uuid.uuid4().hex[:6]}", stack_folder)
    with started(cluster):
        yield cluster


@pytest.fixture
def own_scene(source_cluster: KafkaCluster, own_target: KafkaCluster, tmp_path: Path) -> Iterator[Scenario]:
    made = Scenario(Cluster(source_cluster.bootstrap), Cluster(own_target.bootstrap), tmp_path)
    yield made
    made.store.close()


@pytest.fixture
def scene(clusters: tuple[Cluster, Cluster], tmp_path: Path) -> Iterator[Scenario]:
    made = Scenario(*clusters, tmp_path)
    yield made
    made.store.close()
