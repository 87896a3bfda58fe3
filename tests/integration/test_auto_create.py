"""Brokers that create a topic for whoever asks after it, as Kafka's default is: our clients never ask in that way."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from kafka_replication.config import Copy
from kafka_replication.kafka import clients, offsets
from kafka_replication.kafka.session import KafkaSession
from kafka_replication.kafka.transactions import TransactionalProducer
from kafka_replication.ledger.entries import POSITIONS, Position
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.runtime.deadline import NEVER
from stack.kafka_cluster import KafkaCluster
from tests.support.clusters import started
from tests.support.scenario import Cluster, Scenario, numbered, only


@pytest.fixture(scope="module")
def obliging(stack_folder: Path) -> Iterator[KafkaCluster]:
    cluster = KafkaCluster(
        f"obliging-{uuid.uuid4().hex[:6]}", stack_folder, extra={"auto.create.topics.enable": "true"}
    )
    with started(cluster):
        yield cluster


def test_looking_at_a_topic_that_is_gone(obliging: KafkaCluster) -> None:
    name = f"gone-{uuid.uuid4().hex[:6]}"
    admin = clients.admin({"bootstrap.servers": obliging.bootstrap})
    with suppress(ReplicationError):
        offsets.log_starts(admin, [TopicPartition(name, 0)])
    assert name not in admin.list_topics(timeout=10).topics


def test_fencing_without_a_ledger(obliging: KafkaCluster) -> None:
    config = {"bootstrap.servers": obliging.bootstrap}
    with closing(TransactionalProducer("somebody", "a test", config, Copy(), NEVER)) as writer:
        writer.fence()
    assert POSITIONS not in clients.admin(config).list_topics(timeout=10).topics


@pytest.mark.slow
def test_copying_to_a_topic_that_is_deleted_meanwhile(
    source_cluster: KafkaCluster, obliging: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scenario(Cluster(source_cluster.bootstrap), Cluster(obliging.bootstrap), tmp_path)
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(300))
    look, deletions = KafkaSession.check_target, iter([scene.target.delete])

    def then_delete(self: KafkaSession, position: Position) -> None:
        look(self, position)
        for delete in deletions:
            delete(scene.topic)

    monkeypatch.setattr(KafkaSession, "check_target", then_delete)
    report = scene.run()  # with the number of attempts of the product, which would take hours
    assert "re-created or deleted" in (only(report).error or ""), report.table()
    assert scene.target.partitions(scene.topic) == 0
    scene.store.close()
