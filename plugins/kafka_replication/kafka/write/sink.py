"""Kafka as a sink: one transaction on the target cluster holds a chunk, its receipt and the new position.

In a profile without transactions they are written one after the other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, closing

from kafka_replication.config import Copy
from kafka_replication.kafka.client import clients
from kafka_replication.kafka.metadata import topics
from kafka_replication.kafka.read_back.segment_reader import SegmentReader, segment_reader
from kafka_replication.kafka.write.plain_session import AcknowledgedSession
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
from kafka_replication.sinks.port import Guarantee, TargetState

_GUARANTEES: Mapping[Delivery, Guarantee] = {
    "exactly_once": "transactional",
    "at_least_once": "acknowledged",
    "leader_ack": "leader",
    "fire_and_forget": "none",
}


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

    @property
    def guarantee(self) -> Guarantee:
        return _GUARANTEES[self._delivery]

    def look(self, names: Collection[str]) -> Mapping[str, TargetState]:
        return topics.states(clients.shared_admin(self._target), names)

    def session(
        self, key: PartitionKey, ids: Ids, aside: SetAside | None = None
    ) -> AbstractContextManager[KafkaSinkSession]:
        partition = session_of(key, self._target, self._settings, self._deadline, self._ledger, self._delivery)
        if self._partitioning.sole:
            return closing(KafkaSinkSession(partition, ids, aside))
        from kafka_replication.kafka.write.multi_partition import (
            SpreadSession,  # only a worker that needs it loads it
        )

        return closing(SpreadSession(partition, ids, self._partitioning, aside))

    def why_not_batches(self, topic: str) -> str | None:
        """Why whole batches cannot be written to this target topic; None if they can. Raises Unreachable."""
        from kafka_replication.kafka.metadata.leader import unsupported

        chosen: Mapping[combinations.Axis, Collection[str]] = {
            "delivery": (self._delivery,),
            "partitioning": (self._partitioning.kind,),
            "on_existing_target": ("share",) if self._partitioning.shared else (),
        }
        if reason := combinations.why_not_batches(chosen):
            return reason
        return unsupported(self._target) or _rewrites(topics.config(clients.shared_admin(self._target), topic))

    def verifier(self, key: PartitionKey) -> AbstractContextManager[SegmentReader]:
        return segment_reader(self._target, key, self._settings.stall_timeout, self._settings.throughput_limit)


_STORED_UNCHANGED = {"compression.type": "producer", "message.timestamp.type": "CreateTime", "cleanup.policy": "delete"}


def _rewrites(config: Mapping[str, str]) -> str | None:
    """The setting of a topic because of which brokers may store another batch than they were given."""
    for name, kept in _STORED_UNCHANGED.items():
        if config.get(name, kept) != kept:
            return f"the target topic has {name}={config[name]}"
    return None


def session_of(
    key: PartitionKey,
    target: clients.ClientConfig,
    settings: Copy,
    deadline: Deadline,
    ledger: Ledger | None = None,
    delivery: Delivery = EXACTLY_ONCE,
) -> PartitionSession:
    """A new session of one partition in this profile. The caller closes it."""
    if delivery == EXACTLY_ONCE:
        return PartitionSession(key, target, settings, deadline, ledger)
    return AcknowledgedSession(key, target, settings, deadline, ledger, delivery=delivery)
