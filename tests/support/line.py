"""A target behind a proxy that can be told to misbehave; one for all tests of a process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from stack.kafka_cluster import KafkaCluster
from stack.ports import LOOPBACK, free_ports
from tests.faults.proxy import Proxy
from tests.support.addresses import Addresses
from tests.support.clusters import Brokers, started
from tests.support.scenario import Cluster, Scenario


class Behind(Scenario):
    """A scenario whose replication reaches the target through a proxy."""

    def __init__(self, source: Cluster, target: Cluster, folder: Path, proxy: Proxy) -> None:
        super().__init__(source, target, folder)
        self.proxy = proxy

    @property
    def connections(self) -> Addresses:
        return Addresses(self.source.bootstrap, f"{LOOPBACK}:{self.proxy.port}", of_target=self.client)


@pytest.fixture(scope="session")
def line(stack_folder: Path) -> Iterator[tuple[KafkaCluster, Proxy]]:
    inside, advertised = free_ports(2)
    cluster = KafkaCluster(f"behind-{os.getpid()}", stack_folder, 1, proxied=[(inside, advertised)])
    with started(cluster), closing(Proxy(advertised, inside)) as proxy:
        yield cluster, proxy


@pytest.fixture
def behind(source_cluster: Brokers, line: tuple[KafkaCluster, Proxy], tmp_path: Path) -> Iterator[Behind]:
    cluster, proxy = line
    made = Behind(Cluster(source_cluster.bootstrap), Cluster(cluster.bootstrap), tmp_path, proxy)
    yield made
    proxy.behave()
    made.store.close()
