"""The bytes of partitions on the disks of their leaders."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection

from confluent_kafka import Node

from kafka_replication.kafka.client import clients
from kafka_replication.kafka.client.login import security_of
from kafka_replication.kafka.metadata import topics
from kafka_replication.model.errors import BadInput, ReplicationError
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.wire import log_dirs
from kafka_replication.wire.connection import Connection
from kafka_replication.wire.login.unsupported import Unsupported

log = logging.getLogger(__name__)


def sizes(
    config: clients.ClientConfig, wanted: Collection[TopicPartition], seconds: float
) -> dict[TopicPartition, int]:
    """The sizes of those partitions whose leaders tell them within ``seconds``: one request for each leader."""
    found, until = dict[TopicPartition, int](), time.monotonic() + seconds
    try:
        security = security_of(config)
        described = topics.descriptions(clients.shared_admin(config), {at.topic for at in wanted}, seconds)
    except (Unsupported, BadInput, ReplicationError) as error:
        log.debug("sizes of partitions are not known: %s", error)
        return found
    led = dict[tuple[str, int], list[tuple[str, int]]]()
    for name, topic in described.items():
        for partition in topic.partitions:
            leader: Node | None = partition.leader
            if leader is not None and leader.host and TopicPartition(name, partition.id) in wanted:
                led.setdefault((leader.host, leader.port), []).append((name, partition.id))
    for (host, port), partitions in led.items():
        if (left := until - time.monotonic()) <= 0:
            break
        try:
            with Connection(host, port, security, left) as broker:
                found |= {TopicPartition(*at): size for at, size in log_dirs.sizes(broker, partitions).items()}
        except ReplicationError as error:
            log.debug("sizes of the partitions of %s:%d are not known: %s", host, port, error)
    return found
