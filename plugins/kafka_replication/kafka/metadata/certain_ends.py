"""The ends of logs that are certain: told by leaders about whom all brokers agree.

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

from kafka_replication.kafka.client import clients
from kafka_replication.kafka.client.login import security_of
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.offsets import TopicPartition

if TYPE_CHECKING:  # a client without the engine for whole batches has no wire
    from kafka_replication.wire.connection import Connection

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
