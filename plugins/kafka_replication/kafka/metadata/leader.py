"""A connection to the leader of a partition."""

from __future__ import annotations

from kafka_replication.kafka.client import clients
from kafka_replication.kafka.client.login import security_of
from kafka_replication.kafka.metadata import topics
from kafka_replication.model.errors import BadInput, NotReady
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.wire.connection import Connection
from kafka_replication.wire.login.unsupported import Unsupported


def connect(config: clients.ClientConfig, at: TopicPartition, timeout: float) -> Connection:
    """Raises NotReady without a leader, BadInput for unsupported settings, and the errors of `Connection`."""
    (topic,) = topics.descriptions(clients.shared_admin(config), [at.topic]).values()
    leader = next((partition.leader for partition in topic.partitions if partition.id == at.partition), None)
    if leader is None or not leader.host:
        raise NotReady(f"{at} has no leader", "check the brokers that have its replicas, then run again")
    try:
        security = security_of(config)
    except Unsupported as e:
        raise BadInput(
            f"{at} cannot be read in whole batches: {e.what}",
            f"{e.remedy}; what copy.engine batch has copied is read back in whole batches",
        ) from e
    return Connection(leader.host, leader.port, security, timeout)
