"""Answers of brokers that are lost on their way."""

from __future__ import annotations

import uuid

import pytest

from kafka_replication.kafka import clients, offsets, reachability
from kafka_replication.model.errors import Unreachable
from kafka_replication.model.offsets import TopicPartition
from stack.kafka_cluster import KafkaCluster
from stack.ports import LOOPBACK
from tests.faults.proxy import Proxy
from tests.support.scenario import Cluster

LIST_OFFSETS = 2  # API key
Line = tuple[KafkaCluster, Proxy]


def test_no_offset_is_made_up_for_a_broker_that_did_not_answer(line: Line) -> None:
    """librdkafka 2.16 answers for its partitions with offset -1001 and without an error."""
    (cluster, proxy), topic = line, f"lost-{uuid.uuid4().hex[:6]}"
    Cluster(cluster.bootstrap).create(topic, 3)
    admin = clients.admin({"bootstrap.servers": f"{LOOPBACK}:{proxy.port}"})
    wanted = [TopicPartition(topic, number) for number in range(3)]
    offsets.high_watermarks(admin, wanted)  # now the broker is connected
    proxy.swallow(LIST_OFFSETS)
    try:
        assert offsets.high_watermarks(admin, wanted) == dict.fromkeys(wanted, 0)
        assert not proxy.wants(LIST_OFFSETS), "no answer was there to be lost"
    finally:
        proxy.behave()


def test_a_leader_that_does_not_answer_is_not_reached(line: Line) -> None:
    (cluster, proxy), topic = line, f"lost-{uuid.uuid4().hex[:6]}"
    Cluster(cluster.bootstrap).create(topic)
    config, at = {"bootstrap.servers": f"{LOOPBACK}:{proxy.port}"}, TopicPartition(topic, 0)
    reachability._ask(config, at, 10.0)
    proxy.swallow(LIST_OFFSETS)
    try:
        with pytest.raises(Unreachable, match=f"answers, but the broker that leads {topic}-0 does not"):
            reachability._ask(config, at, 10.0)
    finally:
        proxy.behave()
