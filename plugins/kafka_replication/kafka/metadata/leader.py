"""A connection to the leader of a partition."""

from __future__ import annotations

import os
import threading
from functools import lru_cache
from typing import Any

from kafka_replication.kafka.client import callbacks, clients
from kafka_replication.kafka.metadata import topics
from kafka_replication.model.errors import BadInput, NotReady
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.wire.connection import Connection
from kafka_replication.wire.security import Security, is_about_connecting
from kafka_replication.wire.unsupported import Unsupported


def unsupported(config: clients.ClientConfig) -> str | None:
    """The reason why no connection can be made with these settings; None if one can be made."""
    try:
        security_of(config)
    except (Unsupported, BadInput) as e:
        return str(e)
    return None


def security_of(config: clients.ClientConfig) -> Security:
    """The security for these settings; the same value for the same settings, so that connections share a token.

    Raises Unsupported, and BadInput for a callback that cannot be imported.
    """
    settings = {name: value for name, value in config.items() if is_about_connecting(name) or name == _SERVERS}
    with _making:
        return _security(tuple(sorted(settings.items())))


_SERVERS = "bootstrap.servers"  # those of a cloud say where tokens come from
_making = threading.Lock()


@lru_cache(maxsize=8)  # loading the authorities of a system takes 20 ms
def _security(settings: tuple[tuple[str, Any], ...]) -> Security:
    config = dict(settings)
    return Security.of(config, callbacks.token_callback(config))


def _forked() -> None:
    global _making
    _making = threading.Lock()  # another thread of the parent may have held it, or one inside of what is cached
    _security.cache_clear()


os.register_at_fork(after_in_child=_forked)


def connect(config: clients.ClientConfig, at: TopicPartition, timeout: float) -> Connection:
    """Raises NotReady without a leader, BadInput if `unsupported`, and the errors of `Connection`."""
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
