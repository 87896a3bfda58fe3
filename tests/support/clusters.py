"""Clusters for as long as tests need them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from stack import training
from stack.artifacts import CURRENT, Release, release_of
from stack.kafka_cluster import KafkaCluster, start_all


@dataclass(frozen=True, slots=True)
class Brokers:
    """A cluster that many tests use at the same time: its address, and nothing to stop or change it with."""

    bootstrap: str


@contextmanager
def started(*clusters: KafkaCluster) -> Iterator[None]:
    """All started at the same time. In the end their brokers are killed, as nobody needs the data."""
    try:
        _start(clusters)
        yield
    finally:
        _kill(*clusters)


def _start(clusters: Sequence[KafkaCluster]) -> None:
    """The first start of a version on this machine makes what quickens all others."""
    for cluster in clusters:
        training.make(cluster.folder.parent, cluster.release)
    start_all(clusters)


def _kill(*clusters: KafkaCluster) -> None:
    with ThreadPoolExecutor() as pool:
        list(pool.map(KafkaCluster.kill, clusters))


@contextmanager
def locked(folder: Path, name: str) -> Iterator[None]:
    """One process of the test session at a time."""
    with (folder / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def release_for(name: str) -> Release:
    """The version of Kafka for the session's cluster of this name: ``KAFKA_REPLICATION_TEST_KAFKA`` names the source's and the others'."""
    source, _, others = os.environ.get("KAFKA_REPLICATION_TEST_KAFKA", "").partition(",")
    return release_of((source if name == "source" else others) or CURRENT.version)


def shared(folder: Path, *names: str, brokers: int = 1) -> Sequence[KafkaCluster]:
    """Clusters of the whole session: the process that asks first starts them, its end ends them (`tests/conftest.py`)."""
    with locked(folder, names[0]):
        clusters = [_named(folder, name, brokers) for name in names]
        _start(clusters)
    return clusters


def is_whole(admin: AdminClient, brokers: int) -> bool:
    """Whether every broker answers, and every partition has all its replicas in sync."""
    try:
        metadata = admin.list_topics(timeout=10)
    except KafkaException:
        return False
    partitions = [each for topic in metadata.topics.values() for each in topic.partitions.values()]
    return len(metadata.brokers) == brokers and all(
        each.leader >= 0 and len(each.isrs) == len(each.replicas) for each in partitions
    )


def end_early(folder: Path, name: str, brokers: int) -> None:
    """End a cluster of `shared` that no other test of the session uses."""
    _kill(_named(folder, name, brokers))


def _named(folder: Path, name: str, brokers: int) -> KafkaCluster:
    return KafkaCluster(name, folder, brokers=brokers, release=release_for(name))
