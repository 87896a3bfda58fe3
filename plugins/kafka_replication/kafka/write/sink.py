"""Kafka as a sink: one transaction on the target cluster holds a chunk, its receipt and the new position.

In a profile without transactions they are written one after the other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, closing

from kafka_replication.config import Copy
from kafka_replication.kafka.client import clients
from kafka_replication.kafka.client.login import unsupported
from kafka_replication.kafka.metadata import topics
from kafka_replication.kafka.read_back.segment_reader import SegmentReader, segment_reader
from kafka_replication.kafka.write.commit import Atomic, Ordered
from kafka_replication.kafka.write.session import PartitionSession
from kafka_replication.kafka.write.sink_session import KafkaSinkSession
from kafka_replication.ledger.entries import Ids
from kafka_replication.ledger.port import Ledger
from kafka_replication.model import combinations
from kafka_replication.model.delivery import EXACTLY_ONCE, Delivery
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.partitioning import SOLE, Partitioning
from kafka_replication.runtime.deadline import NEVER, Deadline
from kafka_replication.sinks.failure_budget import SetAside


class KafkaSink:
    """A `Sink` on one target cluster. Its sessions read ``ledger``; None: each session reads the ledger anew."""

    def __init__(
        self,
        target: clients.ClientConfig,
        settings: Copy,
        deadline: Deadline = NEVER,
        ledger: Ledger | None = None,
        partitioning: Partitioning = SOLE,
        delivery: Delivery = EXACTLY_ONCE,
    ) -> None:
        self._target, self._settings, self._deadline, self._ledger = target, settings, deadline, ledger
        self._partitioning = partitioning
        self._delivery: Delivery = delivery

    def session(
        self, key: PartitionKey, ids: Ids, aside: SetAside | None = None
    ) -> AbstractContextManager[KafkaSinkSession]:
        partition = session_of(key, self._target, self._settings, self._deadline, self._delivery, self._ledger)
        if self._partitioning.sole:
            return closing(KafkaSinkSession(partition, ids, aside))
        assert self._delivery == EXACTLY_ONCE, "`model.combinations` refuses other profiles"
        from kafka_replication.kafka.write.multi_partition import EachOffset  # only a worker that needs it loads it

        return closing(KafkaSinkSession(partition, ids, aside, EachOffset(partition, ids, self._partitioning)))

    def why_not_batches(self, topic: str, settings: Mapping[str, str] | None = None) -> str | None:
        chosen: Mapping[combinations.Axis, Collection[str]] = {
            "delivery": (self._delivery,),
            "partitioning": (self._partitioning.kind,),
            "on_existing_target": ("share",) if self._partitioning.shared else (),
        }
        if reason := combinations.why_not_batches(chosen):
            return reason
        if reason := unsupported(self._target):
            return reason
        config = topics.config(clients.shared_admin(self._target), topic) if settings is None else settings
        for name, kept in _STORED_UNCHANGED.items():
            if config.get(name, kept) != kept:
                return f"the target topic has {name}={config[name]}"
        return None

    def verifier(self, key: PartitionKey) -> AbstractContextManager[SegmentReader]:
        return segment_reader(self._target, key, self._settings.stall_timeout, self._settings.throughput_limit)


# With another setting, brokers may store another batch than they were given.
_STORED_UNCHANGED = {"compression.type": "producer", "message.timestamp.type": "CreateTime", "cleanup.policy": "delete"}


def session_of(
    key: PartitionKey,
    target: clients.ClientConfig,
    settings: Copy,
    deadline: Deadline,
    delivery: Delivery,
    ledger: Ledger | None = None,
) -> PartitionSession:
    """A new session of one partition in this profile. The caller closes it."""
    kind = Atomic if delivery == EXACTLY_ONCE else Ordered
    return kind(key, target, settings, deadline, ledger, delivery)
