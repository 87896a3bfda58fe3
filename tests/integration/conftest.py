"""A scenario for each test, on the session's clusters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stack.kafka_cluster import KafkaCluster
from tests.integration.scenario import Cluster, Scenario


@pytest.fixture(scope="session")
def clusters(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> tuple[Cluster, Cluster]:
    return Cluster(source_cluster.bootstrap), Cluster(target_cluster.bootstrap)


@pytest.fixture
def scene(clusters: tuple[Cluster, Cluster], tmp_path: Path) -> Iterator[Scenario]:
    made = Scenario(*clusters, tmp_path)
    yield made
    made.store.close()
