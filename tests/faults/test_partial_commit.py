"""What Kafka itself does: a commit while one of the transaction's partitions has no leader. No part of this product takes part.

docs/architecture.md builds on it. If this test fails with a later Kafka, its brokers no longer commit a part of a transaction.
"""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # re-exported without saying so

from kafka_replication.kafka import offsets
from kafka_replication.model.offsets import TopicPartition
from tests.faults.bench import Side
from tests.faults.session import Session
from tests.support.checker import read
from tests.support.waiting import wait_until


def one_replica(side: Side, topic: str, broker: int) -> None:
    made = NewTopic(topic, replica_assignment=[[broker]], num_partitions=1, config={"min.insync.replicas": "1"})
    side.admin.create_topics([made])[topic].result(30)
    wait_until(lambda: side.direct.partitions(topic) == 1)


def producer(side: Side, transactional_id: str) -> Producer:
    made = Producer(
        {
            "bootstrap.servers": side.cluster.bootstrap,
            "transactional.id": transactional_id,
            "linger.ms": 0,
            "log_level": 0,
        }
    )
    made.init_transactions(60)
    return made


def send(writer: Producer, value: str, *topics: str) -> None:
    writer.begin_transaction()
    for topic in topics:
        writer.produce(topic, value=value)
    assert writer.flush(60) == 0


@pytest.mark.slow  # only another Kafka can change it
def test_a_commit_is_partial_if_a_partition_has_no_leader(session: Session) -> None:
    side, name = session.bench.target, uuid.uuid4().hex[:6]
    kept, lost, transactional_id = f"kept-{name}", f"lost-{name}", f"partial-{name}"
    writer = producer(side, transactional_id)
    # The coordinator has to live on: its broker is not the one that dies.
    coordinator = side.coordinator(transactional_id).node_id
    dies = side.cluster.broker(coordinator % 3)
    one_replica(side, kept, coordinator)
    one_replica(side, lost, dies.node_id)
    bootstrap = side.cluster.bootstrap
    try:
        send(writer, "first", kept, lost)
        dies.kill()
        wait_until(lambda: side.direct.partitions(lost) == 0)
        writer.commit_transaction(60)  # succeeds
        side.heal()
        assert [record.value for _, record in read(bootstrap, kept, 0)] == [b"first"]
        at = TopicPartition(lost, 0)
        assert (offsets.last_stable(side.admin, [at]), offsets.high_watermarks(side.admin, [at])) == ({at: 0}, {at: 1})
        writer = producer(side, transactional_id)
        send(writer, "second", lost)
        writer.abort_transaction(60)
        wait_until(lambda: side.direct.size(lost) == 3)  # two records and a marker
        assert read(bootstrap, lost, 0) == [], "the first record was committed, and the second one's abort dropped it"
    finally:
        side.heal()
        for topic in (kept, lost):
            side.direct.delete(topic)
