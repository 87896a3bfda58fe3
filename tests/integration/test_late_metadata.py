"""A broker that learns of a new topic late, and a client that believes it; a client that asks for a topic late."""

from __future__ import annotations

import logging
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from kafka_replication.kafka import clients, offsets, topics
from kafka_replication.kafka.reading import PartitionReader
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from tests.support.scenario import Cluster, numbered


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


def test_a_consumer_that_goes_on_with_another_topic_asks_for_its_leader_at_once(
    clusters: tuple[Cluster, Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    """librdkafka notices each second that it knows nothing of a topic: of 40 topics, each cost half a second."""
    source, _ = clusters
    names = [f"next-{uuid.uuid4().hex[:6]}" for _ in range(3)]
    for name in names:
        source.create(name)
        source.produce(name, numbered(5))
    caplog.set_level(logging.DEBUG, logger=clients.log.name)
    config = {"bootstrap.servers": source.bootstrap, "debug": "topic,metadata", "log_level": 7}
    with closing(clients.consumer(config, "next")) as consumer:
        for name in names:
            reader = PartitionReader(consumer, TopicPartition(name, 0))
            assert len(list(reader.records(OffsetRange(0, 5)))) == 5
            consumer.unassign()
    assert f"Topic {names[-1]} changed state unknown -> exists" in caplog.text
    assert "metadata information unknown" not in caplog.text
