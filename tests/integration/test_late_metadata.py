"""A broker that learns of a new topic late, and a client that believes it."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

from kafka_replication.kafka import clients, offsets, topics
from kafka_replication.model.offsets import TopicPartition
from tests.support.scenario import Cluster


def test_a_topic_that_was_unknown_a_moment_ago(clusters: tuple[Cluster, Cluster]) -> None:
    """The client keeps "unknown" for 15 minutes: a first run failed so on a cluster whose ledger topics it had just created."""
    _, target = clusters
    name = f"late-{uuid.uuid4().hex[:6]}"
    admin = clients.admin({"bootstrap.servers": target.bootstrap})
    assert topics.describe(admin, [name]).topics == {}
    target.create(name, 2)
    assert set(offsets.log_starts(admin, [TopicPartition(name, 0), TopicPartition(name, 1)]).values()) == {0}


def test_a_configuration_that_is_there_a_moment_later(clusters: tuple[Cluster, Cluster]) -> None:
    """One broker of three had described the ledger's new topic, and another one did not know it yet."""
    _, target = clusters
    name = f"late-{uuid.uuid4().hex[:6]}"
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(topics.configs, clients.admin({"bootstrap.servers": target.bootstrap}), [name])
        target.create(name)
        known, failed = asked.result()
    assert (list(known), failed) == ([name], {})
