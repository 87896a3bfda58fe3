"""The end of a log is certain if every broker answers and names the same leader of it."""

from __future__ import annotations

import signal
import uuid

from kafka_replication.kafka import clients
from kafka_replication.kafka.brokers import certain_ends, security_of
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.wire import metadata
from kafka_replication.wire.connection import Connection
from stack.kafka_cluster import KafkaCluster
from stack.ports import LOOPBACK
from tests.support.scenario import Cluster, numbered
from tests.support.waiting import wait_until

RECORDS = 10


def test_one_that_not_every_broker_tells_is_not_certain(target3: KafkaCluster) -> None:
    topic, cluster = f"ends-{uuid.uuid4().hex[:6]}", Cluster(target3.bootstrap)
    at, config = TopicPartition(topic, 0), {"bootstrap.servers": target3.bootstrap}
    cluster.create(topic, config={"min.insync.replicas": "1"}, assignment=[[1]])
    cluster.produce(topic, numbered(RECORDS))
    with clients.admin(config) as admin:
        # Otherwise one that an earlier test has held may be fenced: then no broker names it, and nobody asks it.
        wait_until(lambda: len(admin.list_topics(timeout=10).brokers) == len(target3.brokers))
        assert certain_ends(admin, [at], 30.0) == {at: RECORDS}
        idle = target3.broker(2).process
        assert idle is not None
        idle.send(signal.SIGSTOP)
        try:
            assert certain_ends(admin, [at], 1.0) == {}
        finally:
            idle.send(signal.SIGCONT)
    cluster.delete(topic)


def test_a_leader_answers_only_in_its_own_epoch(target3: KafkaCluster) -> None:
    topic, cluster = f"ends-{uuid.uuid4().hex[:6]}", Cluster(target3.bootstrap)
    cluster.create(topic, config={"min.insync.replicas": "1"}, assignment=[[1]])
    cluster.produce(topic, numbered(RECORDS))
    security = security_of({"bootstrap.servers": target3.bootstrap})
    with Connection(LOOPBACK, target3.broker(0).port, security, 30.0) as broker:
        leader = metadata.metadata(broker, [topic]).leaders[topic, 0]
        assert leader.broker == 1
        ends = [metadata.end(broker, topic, 0, leader.epoch + more) for more in (0, 1)]
    assert ends == [RECORDS, None]
    cluster.delete(topic)
