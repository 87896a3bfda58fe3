"""Real Kafka clusters for the tests, each started once a session when the first test asks for it, in a fresh folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from stack.java import SPARK_JVM
from stack.kafka_cluster import KafkaCluster
from stack.ports import take_share
from stack.processes import ProcessRecord, sweep
from tests.clusters import started

# A busy machine is no failure: no test of ours has a time limit of its own.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")

os.environ |= {**SPARK_JVM, **os.environ}

if WORKER := os.environ.get("PYTEST_XDIST_WORKER"):
    take_share(int(WORKER.removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))

# The longest files first, so that all processes end at about the same time.
LONGEST = ("spark", "e2e", "faults", "integration")

PREFIX = "kafka-replication-tests-"
OWNER = "pytest.pid"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        folder = item.path.parent.name
        return LONGEST.index(folder) if folder in LONGEST else len(LONGEST)

    items.sort(key=place)


@pytest.fixture(scope="session")
def stack_folder() -> Iterator[Path]:
    """An empty state folder. A session that was killed leaves brokers behind: the next one ends them."""
    for leftover in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        owner = ProcessRecord.read(leftover / OWNER)
        if owner is not None and not owner.alive:
            sweep(leftover)
            shutil.rmtree(leftover, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    mine = ProcessRecord.of(os.getpid())
    assert mine is not None
    mine.write(folder / OWNER)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def _pair(stack_folder: Path) -> Iterator[tuple[KafkaCluster, KafkaCluster]]:
    """Source and target, started at the same time."""
    pair = KafkaCluster("source", stack_folder), KafkaCluster("target", stack_folder)
    with started(*pair):
        yield pair


@pytest.fixture(scope="session")
def source_cluster(_pair: tuple[KafkaCluster, KafkaCluster]) -> KafkaCluster:
    """One broker."""
    return _pair[0]


@pytest.fixture(scope="session")
def target_cluster(_pair: tuple[KafkaCluster, KafkaCluster]) -> KafkaCluster:
    """One broker."""
    return _pair[1]


@pytest.fixture(scope="session")
def target3(stack_folder: Path) -> Iterator[KafkaCluster]:
    """Three brokers, replication factor 3, min ISR 2."""
    cluster = KafkaCluster("target3", stack_folder, brokers=3)
    with started(cluster):
        yield cluster
