"""The ids of large topics, asked for without their partitions."""

from __future__ import annotations

import uuid

import pytest

from kafka_replication.kafka import clients, topics
from kafka_replication.kafka.brokers import MANY, security_of
from kafka_replication.model.errors import Refused
from kafka_replication.wire import metadata
from kafka_replication.wire.connection import Connection
from tests.support.scenario import Cluster
from tests.support.waiting import wait_until


def test_ids_are_written_as_the_client_writes_them(clusters: tuple[Cluster, Cluster]) -> None:
    """A client's text of an id may have any of 64 characters: in 20 topics the rare ones occur."""
    source, _ = clusters
    config = {"bootstrap.servers": source.bootstrap}
    names = [f"id-{uuid.uuid4().hex[:8]}" for _ in range(20)]
    for name in names:
        source.create(name)
    host, port = source.bootstrap.split(":")
    with Connection(host, int(port), security_of(config), 10.0) as broker:
        told = metadata.topic_ids(broker, [*names, "there-is-none"])
    assert told == {name: state.id for name, state in topics.states(clients.admin(config), names).items()}


@pytest.mark.parametrize("partitions", [1, MANY])
def test_a_topic_that_is_created_again_is_refused(clusters: tuple[Cluster, Cluster], partitions: int) -> None:
    source, _ = clusters
    name = f"again-{uuid.uuid4().hex[:8]}"
    source.create(name, partitions)
    admin = clients.admin({"bootstrap.servers": source.bootstrap})
    before = topics.states(admin, [name])[name].id
    for _ in range(3):  # the first question tells that a topic is large
        topics.check_id(admin, name, before, "source")
    source.admin.delete_topics([name])[name].result(30)
    wait_until(lambda: topics.current_id(admin, name) is None)  # brokers learn it a moment after the controllers
    with pytest.raises(Refused, match="does not exist now"):
        topics.check_id(admin, name, before, "source")
    source.create(name, partitions)
    wait_until(lambda: topics.current_id(admin, name) is not None)
    with pytest.raises(Refused, match="re-created"):
        topics.check_id(admin, name, before, "source")
