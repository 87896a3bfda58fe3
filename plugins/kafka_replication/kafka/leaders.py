"""A connection to the leader of a partition.

The ends of logs that are certain: told by leaders about whom all brokers agree.

A leader that is cut off from the controllers goes on to answer, with a log that may be shorter than that of its
successor. One broker's answer is enough to refuse something, not to give something up.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import ExitStack
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kafka_replication.kafka import clients, topics
from kafka_replication.kafka.login import security_of
from kafka_replication.model.errors import BadInput, NotReady, ReplicationError
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.wire.connection import Connection
from kafka_replication.wire.tls import Unsupported

if TYPE_CHECKING:
    from kafka_replication.wire.connection import Connection


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


log = logging.getLogger(__name__)


def certain_ends(
    config: clients.ClientConfig, admin: AdminClient, wanted: Collection[TopicPartition], seconds: float
) -> dict[TopicPartition, int]:
    """The high watermark of each partition. One is left out if a broker does not answer within ``seconds``, or if two
    brokers name different leaders or leader epochs.
    """
    if not wanted:
        return {}
    try:
        from kafka_replication.wire import metadata

        with ExitStack() as stack:
            brokers = _all(config, admin, seconds, stack)
            told = {number: metadata.metadata(one, {at.topic for at in wanted}) for number, one in brokers.items()}
            ends = dict[TopicPartition, int]()
            for at in sorted(wanted):
                named = {one.leaders.get((at.topic, at.partition)) for one in told.values()}
                leader = named.pop()
                if named or leader is None or leader.epoch < 0 or leader.broker not in brokers:
                    log.warning("%s: its end is not certain: brokers name different leaders of it, or none", at)
                    continue
                end = metadata.end(brokers[leader.broker], at.topic, at.partition, leader.epoch)
                if end is not None:
                    ends[at] = end
            return ends
    except (ReplicationError, KafkaException, ImportError, ValueError, OSError) as error:
        log.warning("the ends of %s are not certain: not every broker answers: %s", ", ".join(map(str, wanted)), error)
        return {}


def _all(config: clients.ClientConfig, admin: AdminClient, seconds: float, stack: ExitStack) -> dict[int, Connection]:
    """A connection to every broker that a client or another broker knows."""
    from kafka_replication.wire import metadata
    from kafka_replication.wire.connection import Connection

    security, opened = security_of(config), dict[int, Connection]()
    left = {
        number: (str(one.host), int(one.port)) for number, one in admin.list_topics(timeout=seconds).brokers.items()
    }
    while left:
        for number, (host, port) in left.items():
            opened[number] = stack.enter_context(Connection(host, port, security, seconds))
        known = [metadata.metadata(opened[number], ()).brokers for number in left]
        left = {number: at for told in known for number, at in told.items() if number not in opened}
    return opened
