"""Names the transaction that hides the offsets behind a partition's last stable offset, with its owner and its end."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kafka_replication.kafka.client.client_errors import ReportingAdmin
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.keys import replication_of
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.model.times import to_text

if TYPE_CHECKING:
    from kafka_replication.wire.transactions import Described

log = logging.getLogger(__name__)
FIRST_LINE, REPEAT_AFTER = 3.0, 60.0  # seconds of waiting before the first log line and between later ones
ANSWER = 5.0  # seconds that one broker may take
MOST = 3  # partitions that one message names
SWEEP = timedelta(seconds=10)  # brokers look for transactions whose time is over every so often, by default


class WaitLog:
    """Logs the reason of a wait once the wait is no short one."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin, self._next = admin, time.monotonic() + FIRST_LINE

    def still_hidden(self, stable: Mapping[TopicPartition, int]) -> None:
        """Note that these partitions are still hidden from these offsets on."""
        if not stable or time.monotonic() < self._next:
            return
        for partition in sorted(stable)[:MOST]:
            description = named(self._admin, partition)
            log.warning(
                "waiting for the end of a transaction that hides %s from %d on%s",
                partition,
                stable[partition],
                description,
            )
        if len(stable) > MOST:
            log.warning("and of those that hide %d more partitions", len(stable) - MOST)
        self._next = time.monotonic() + REPEAT_AFTER


def named(admin: AdminClient, partition: TopicPartition) -> str:
    """``: `` and the brokers' description of the first open transaction in this partition; empty if they have none,
    such as brokers before Kafka 3.0. Never raises, and takes seconds at most.
    """
    try:
        return f": {text}" if (text := _described(admin, partition)) else ""
    except (ReplicationError, KafkaException, ImportError, ValueError, OSError) as e:
        log.debug("%s: nothing is known of its open transaction: %s", partition, e)
        return ""


def owners(admin: AdminClient, partition: TopicPartition) -> dict[str, int]:
    """The transactional ids with an open transaction in this partition, each with the offset where that begins there;
    without those that no coordinator knows or shows. Empty if brokers do not tell. Never raises.
    """
    try:
        open_ = _open_in(admin, partition)
        return {one.transactional_id: begins for _, begins, one in open_ if one is not None}
    except (ReplicationError, KafkaException, ImportError, ValueError, OSError) as e:
        log.warning("%s: whose transaction is open in it was not found out: %s", partition, e)
        return {}


def _described(admin: AdminClient, partition: TopicPartition) -> str:
    first = next(_open_in(admin, partition), None)
    if first is None:
        return ""
    producer, _, described = first
    if described is not None:
        return _text(described, producer)
    return (
        f"producer id {producer}, which no coordinator shows this login: its owner is somebody else, or the"
        " transaction hangs and never ends by itself"
    )


def _open_in(admin: AdminClient, partition: TopicPartition) -> Iterator[tuple[int, int, Described | None]]:
    """Each producer with an open transaction in the partition: its id, the offset where that begins, and what the
    coordinator says of it.
    """
    if not isinstance(admin, ReportingAdmin):
        return
    from kafka_replication.kafka.client.login import security_of
    from kafka_replication.wire import transactions
    from kafka_replication.wire.connection import Connection

    cluster, security = admin.list_topics(partition.topic, timeout=ANSWER), security_of(admin.reported.settings)
    leader = cluster.topics[partition.topic].partitions[partition.partition].leader

    def connect(broker: int) -> Connection:
        address = cluster.brokers[broker]
        return Connection(str(address.host), int(address.port), security, ANSWER)

    def described(producer: int) -> Described | None:
        for broker in cluster.brokers:
            with connect(broker) as connection:
                if (found := transactions.transaction_of(connection, producer)) is not None:
                    return found
        return None

    with connect(leader) as connection:
        producers = transactions.open_in(connection, partition.topic, partition.partition)
    for producer, begins in producers.items():
        yield producer, begins, described(producer)


def _text(described: Described, producer: int) -> str:
    whose = replication_of(described.transactional_id)
    owner = f"replication {whose}" if whose else "none of our replications"
    text = f"transactional id {described.transactional_id} ({owner}), producer id {producer}"
    if described.begun is None or described.timeout is None:  # the markers of its end are not written everywhere yet
        return f"{text}, in state {described.state}"
    end = to_text(described.begun + described.timeout + SWEEP)
    return f"{text}, open since {to_text(described.begun)}; if nobody ends it, brokers abort it by {end}"
