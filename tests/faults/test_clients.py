"""Answers of brokers that are lost on their way."""

from __future__ import annotations

import uuid

import pytest

from kafka_replication.kafka.client import clients
from kafka_replication.kafka.metadata import offsets
from kafka_replication.kafka.preflight import reachability
from kafka_replication.model.errors import Unreachable
from kafka_replication.model.offsets import TopicPartition
from tests.faults.session import Session

LIST_OFFSETS = 2  # API key


def test_no_offset_is_made_up_for_a_broker_that_did_not_answer(session: Session) -> None:
    """librdkafka 2.16 answers for its partitions with offset -1001 and without an error."""
    target, topic = session.bench.target, f"lost-{uuid.uuid4().hex[:6]}"
    target.direct.create(topic, 3)
    admin = clients.admin({"bootstrap.servers": target.bootstrap})
    wanted = [TopicPartition(topic, number) for number in range(3)]
    offsets.high_watermarks(admin, wanted)  # now every broker is connected
    for proxy in target.proxies:
        proxy.swallow(LIST_OFFSETS)
    assert offsets.high_watermarks(admin, wanted) == dict.fromkeys(wanted, 0)
    assert not any(proxy.wants(LIST_OFFSETS) for proxy in target.proxies), "no answer was there to be lost"


def test_a_leader_that_does_not_answer_is_not_reached(session: Session) -> None:
    target, topic = session.bench.target, f"lost-{uuid.uuid4().hex[:6]}"
    target.direct.create(topic)
    config, at = {"bootstrap.servers": target.bootstrap}, TopicPartition(topic, 0)
    reachability._ask(config, at, 10.0)
    for proxy in target.proxies:
        proxy.swallow(LIST_OFFSETS)
    try:
        with pytest.raises(Unreachable, match=f"answers, but the broker that leads {topic}-0 does not"):
            reachability._ask(config, at, 10.0)
    finally:
        target.heal()
