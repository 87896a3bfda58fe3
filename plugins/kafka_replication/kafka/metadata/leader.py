"""A connection to the leader of a partition."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from kafka_replication.kafka.client import clients
from kafka_replication.kafka.metadata import topics
from kafka_replication.model.errors import BadInput, NotReady
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.wire.connection import Connection
from kafka_replication.wire.security import Security, is_about_connecting


def unsupported(config: clients.ClientConfig) -> str | None:
    """The reason why no connection can be made with these settings; None if one can be made."""
    try:
        security_of(config)
    except (ValueError, OSError) as e:
        return str(e)
    return None


def security_of(config: clients.ClientConfig) -> Security:
    """The security for these settings. Raises ValueError, OSError."""
    return _security(tuple(sorted((name, value) for name, value in config.items() if is_about_connecting(name))))


@lru_cache(maxsize=8)  # loading the authorities of a system takes 20 ms
def _security(settings: tuple[tuple[str, Any], ...]) -> Security:
    return Security.of(dict(settings))


def connect(config: clients.ClientConfig, at: TopicPartition, timeout: float) -> Connection:
    """Raises NotReady without a leader, BadInput if `unsupported`, and the errors of `Connection`."""
    (topic,) = topics.descriptions(clients.shared_admin(config), [at.topic]).values()
    leader = next((partition.leader for partition in topic.partitions if partition.id == at.partition), None)
    if leader is None or not leader.host:
        raise NotReady(f"{at} has no leader", "check the brokers that have its replicas, then run again")
    try:
        security = security_of(config)
    except (ValueError, OSError) as e:
        raise BadInput(
            f"{at} cannot be read in whole batches: {e}", "connect as before, when it was copied with copy.engine batch"
        ) from e
    return Connection(leader.host, leader.port, security, timeout)
