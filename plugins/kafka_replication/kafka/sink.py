"""Kafka as a sink: one transaction on the target cluster holds a chunk, its receipt and the new position.

In a profile without transactions they are written one after the other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property

from kafka_replication.config import Copy
from kafka_replication.kafka import clients, topics
from kafka_replication.kafka.acknowledged_session import AcknowledgedSession
from kafka_replication.kafka.batch_size import batch_size
from kafka_replication.kafka.chunk_writer import ChunkWriter
from kafka_replication.kafka.segment_reader import SegmentReader, segment_reader
from kafka_replication.kafka.send_window import SendWindow
from kafka_replication.kafka.session import PartitionSession
from kafka_replication.ledger.entries import Ids, Position, Receipt
from kafka_replication.ledger.port import Ledger
from kafka_replication.model.delivery import EXACTLY_ONCE, Delivery
from kafka_replication.model.keys import PartitionKey
from kafka_replication.runtime.deadline import NEVER, Deadline
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
        delivery: Delivery = EXACTLY_ONCE,
    ) -> None:
        self._target, self._settings, self._deadline, self._ledger = target, settings, deadline, ledger
        self._delivery: Delivery = delivery

    @property
    def guarantee(self) -> Guarantee:
        return _GUARANTEES[self._delivery]

    def look(self, names: Collection[str]) -> Mapping[str, TargetState]:
        return topics.states(clients.shared_admin(self._target), names)

    @contextmanager
    def session(self, key: PartitionKey, ids: Ids) -> Iterator[KafkaSinkSession]:
        partition = session_of(key, self._target, self._settings, self._deadline, self._ledger, self._delivery)
        session = KafkaSinkSession(partition, ids)
        try:
            yield session
        finally:
            session.close()

    def verifier(self, key: PartitionKey) -> AbstractContextManager[SegmentReader]:
        return segment_reader(self._target, key, self._settings.stall_timeout, self._settings.throughput_limit)


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


class KafkaSinkSession:
    """A `SinkSession`: one session of a partition's producer."""

    def __init__(self, partition: PartitionSession, ids: Ids) -> None:
        self._partition, self._ids = partition, ids
        # So that the rest of a chunk is acknowledged soon after its time (copy.chunk_seconds) is over.
        self._window = SendWindow(partition.settings.chunk_seconds / 4)
        self._writer: ChunkWriter | None = None

    @property
    def written(self) -> int:
        return 0 if self._writer is None else self._writer.sent

    @cached_property
    def _limits(self) -> Mapping[str, str]:
        return topics.config(self._partition.target_admin, self._partition.key.target_topic)

    @property
    def throttled(self) -> float:
        return self._partition.sender.throttling.seconds

    def fence(self) -> None:
        self.check_ids(self._ids)  # first: a deleted topic must not look like an unreachable one
        limit = int(self._limits["max.message.bytes"])
        self._partition.sender.options["batch.size"] = batch_size(self._partition.target, limit)
        self._partition.fence()

    def position(self) -> Position | None:
        return self._partition.position()

    def check_target(self, position: Position) -> None:
        self._partition.check_target(position)

    def check_ids(self, ids: Ids) -> None:
        self._partition.check_ids(ids)

    def begin(self) -> ChunkWriter:
        self._writer = self._partition.begin_chunk(self._window, self._limits)
        return self._writer

    def commit(self, position: Position, receipt: Receipt) -> None:
        self._partition.commit(position, receipt)
        self._writer = None

    def close(self) -> None:
        self._partition.close()
