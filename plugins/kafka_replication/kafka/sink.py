"""Kafka as a sink: one transaction on the target cluster holds a chunk, its receipt and the new position.

In a profile without transactions they are written one after the other.

One partition's way into Kafka: chunks, what is set aside, receipts and positions, by one session of its producer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, closing

from kafka_replication.config import Copy
from kafka_replication.copying.sink import SetAside
from kafka_replication.kafka import clients, topics
from kafka_replication.kafka.brokers import unsupported
from kafka_replication.kafka.commit import Atomic, Ordered
from kafka_replication.kafka.read_back import SegmentReader, segment_reader
from kafka_replication.kafka.session import KafkaSession
from kafka_replication.ledger.entries import Ids
from kafka_replication.ledger.port import Ledger
from kafka_replication.model import combinations
from kafka_replication.model.choices import EXACTLY_ONCE, SOLE, Delivery, Partitioning
from kafka_replication.model.offsets import PartitionKey
from kafka_replication.runtime.deadline import NEVER, Deadline


def kind_of(delivery: Delivery) -> type[KafkaSession]:
    """The sessions of this profile."""
    return Atomic if delivery == EXACTLY_ONCE else Ordered


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
    ) -> AbstractContextManager[KafkaSession]:
        arguments = key, self._target, self._settings, self._deadline, self._ledger, self._delivery
        if self._partitioning.sole:
            return closing(kind_of(self._delivery)(*arguments, ids=ids, aside=aside))
        assert self._delivery == EXACTLY_ONCE, "`model.combinations` refuses other profiles"
        from kafka_replication.kafka.multi_partition import SpreadSession  # only a worker that needs it loads it

        return closing(SpreadSession(*arguments, ids=ids, aside=aside, partitioning=self._partitioning))

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
