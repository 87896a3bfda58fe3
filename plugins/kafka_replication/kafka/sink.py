"""Kafka as a sink: one transaction on the target cluster holds a chunk, its receipt and the new position.

In a profile without transactions they are written one after the other.

One partition's way into Kafka: chunks, what is set aside, receipts and positions, by one session of its producer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, closing
from functools import cached_property
from typing import TYPE_CHECKING

from kafka_replication.config import Copy
from kafka_replication.copying.sink import Batches, Record, SetAside
from kafka_replication.kafka import clients, topics
from kafka_replication.kafka.brokers import unsupported
from kafka_replication.kafka.chunk_writer import ChunkWriter, Ends, batch_size
from kafka_replication.kafka.commit import Atomic, Ordered
from kafka_replication.kafka.producers import SendWindow
from kafka_replication.kafka.quarantine import Origin, TargetLimits, largest_batch
from kafka_replication.kafka.quarantine_writer import AsideWriter
from kafka_replication.kafka.read_back import SegmentReader, segment_reader
from kafka_replication.kafka.session import PartitionSession
from kafka_replication.ledger.entries import Ids, Position, Receipt
from kafka_replication.ledger.port import Ledger, TransactionPort
from kafka_replication.model import combinations
from kafka_replication.model.choices import EXACTLY_ONCE, SOLE, Delivery, Failure, Partitioning
from kafka_replication.model.errors import Refused
from kafka_replication.model.offsets import Coverage, PartitionKey
from kafka_replication.runtime.deadline import NEVER, Deadline

if TYPE_CHECKING:
    from kafka_replication.kafka.batch_producer import BatchProducer
    from kafka_replication.kafka.multi_partition import EachOffset


class KafkaSinkSession:
    """A `SinkSession`: one session of a partition's producers. ``spread`` says how records lie among those of others;
    None: the target partition has no other writer.
    """

    def __init__(
        self,
        partition: PartitionSession,
        ids: Ids,
        aside: SetAside | None = None,
        spread: EachOffset | None = None,
    ) -> None:
        self._partition, self._ids, self._aside, self._spread = partition, ids, aside, spread
        self._set_aside = 0  # records of this generation, as the newest position says
        self._lane: BatchProducer | None = None  # carries whole batches; None: none was written yet
        # So that the rest of a chunk is acknowledged soon after its time (`Copy.chunk_seconds`) is over.
        self._window = SendWindow(partition.settings.chunk_seconds / 4)
        self._writer: ChunkWriter | BatchProducer | None = None

    @property
    def written(self) -> int:
        return 0 if self._writer is None else self._writer.sent

    @property
    def first(self) -> Record | None:
        return None if self._writer is None else self._writer.first

    @cached_property
    def _limits(self) -> Mapping[str, str]:
        return topics.config(self._partition.admin, self._partition.key.target_topic)

    @property
    def throttled(self) -> float:
        return self._partition.sender.throttling.seconds

    def fence(self) -> None:
        self.check_ids(self._ids)  # first: a deleted topic must not look like an unreachable one
        limit = largest_batch(self._limits)
        if self._aside is not None and "quarantine" in self._aside.policy.policies:  # its records go there as well
            quarantine = self._aside.topic
            if topics.states(self._partition.admin, [quarantine]):
                limit = min(limit, largest_batch(topics.config(self._partition.admin, quarantine)))
        largest = batch_size(self._partition.target, limit)
        options = self._partition.sender.options
        options["batch.size"] = largest
        if self._aside is not None and self._aside.queue:
            options["queue.buffering.max.kbytes"] = (self._aside.queue >> 10) + 64  # for headers of the quarantine, too
        self._partition.fence()

    def position(self) -> Position | None:
        position = self._partition.position()
        # Also what a session committed that was not reported so.
        self._set_aside = 0 if position is None else position.set_aside
        return position

    def check_target(self, position: Position) -> None:
        if self._spread is not None:
            self._spread.check_target(position)
            return
        self._partition.refuse_change(SOLE, position)
        self._partition.check_target(position)

    def check_ids(self, ids: Ids) -> None:
        self._partition.check_ids(ids)

    def begin(self) -> ChunkWriter:
        aside = None
        if self._aside is not None:
            aside = AsideWriter(
                rules=self._aside,
                before=self._set_aside,
                limits=self._target_limits,
                origin=Origin(self._partition.key, self._ids, self._aside.generation),
                sender=self._partition.sender,
                partitions=lambda: self._quarantine_partitions,
            )
        self._writer = writer = ChunkWriter(
            key=self._partition.key,
            sender=self._partition.sender,
            places=Ends(self._partition) if self._spread is None else self._spread.begin(),
            window=self._window,
            limits=self._limits,
            aside=aside,
        )
        self._partition.begin()
        return writer

    @property
    def batches(self) -> Batches | None:
        if self._spread is not None or not isinstance(self._partition, Atomic):
            return None
        return Batches(largest_batch(self._limits), self._begin_batches)

    def _begin_batches(self) -> BatchProducer:
        """Begin the next chunk, of whole batches. A session writes either these or records."""
        partition = self._partition
        assert isinstance(partition, Atomic)
        if self._lane is None:
            from kafka_replication.kafka.batch_producer import BatchProducer

            # The first batches come: learn what brokers know this session by. The position is written again for that.
            self._lane = BatchProducer(
                partition.key,
                partition.target,
                partition.transaction,
                partition.write_again(),
                window=self._window,
                check_between=partition.check_between,
            )
        partition.begin()
        self._lane.sent = 0
        self._writer = self._lane
        return self._lane

    @cached_property
    def _target_limits(self) -> TargetLimits:
        return TargetLimits.of(self._partition.key.target_topic, self._limits, self._partition.target)

    @cached_property
    def _quarantine_partitions(self) -> int:
        assert self._aside is not None
        name = self._aside.topic
        there = topics.states(self._partition.admin, [name])
        if name not in there:
            raise Refused(f"the quarantine topic {name} does not exist on the target", "run again, which creates it")
        return len(there[name].partitions)

    def refusal(self, record: Record) -> Failure | None:
        """The failure of a record that the target is certain to refuse."""
        return self._target_limits.refusal(record)

    @property
    def ledger(self) -> Ledger:
        return self._partition.ledger

    @property
    def transaction(self) -> TransactionPort:
        return self._partition.transaction

    def drop_uncommitted(self, offsets: Coverage) -> None:
        """Fencing has aborted them."""

    def commit(self, position: Position, receipt: Receipt) -> None:
        self._partition.commit(position, receipt)
        self._set_aside, self._writer = position.set_aside, None
        if self._lane is not None:
            self._lane.committed()

    def close(self) -> None:
        try:
            if self._lane is not None:
                self._lane.close()
        finally:
            self._partition.close()


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
        from kafka_replication.kafka.multi_partition import EachOffset  # only a worker that needs it loads it

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
