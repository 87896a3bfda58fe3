"""One partition's way into Kafka: chunks, what is set aside, receipts and positions, by one session of its producer."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kafka_replication.kafka.metadata import topics
from kafka_replication.kafka.quarantine.quarantine_record import Origin
from kafka_replication.kafka.quarantine.target_limits import SIZE, TargetLimits
from kafka_replication.kafka.write.batch_size import batch_size
from kafka_replication.kafka.write.chunk_writer import ChunkWriter
from kafka_replication.kafka.write.quarantine_writer import AsideWriter
from kafka_replication.kafka.write.send_window import SendWindow
from kafka_replication.kafka.write.session import PartitionSession
from kafka_replication.kafka.write.transactions import TransactionalProducer
from kafka_replication.ledger.entries import Handled, Ids, Position, Receipt
from kafka_replication.model.errors import Refused
from kafka_replication.sinks.failure_budget import SetAside
from kafka_replication.sinks.port import Record

if TYPE_CHECKING:  # only a worker that needs it loads it
    from kafka_replication.kafka.write.batch_producer import BatchLane, BatchWriter


class KafkaSinkSession:
    """A `SinkSession`: one session of a partition's producer."""

    def __init__(self, partition: PartitionSession, ids: Ids, aside: SetAside | None = None) -> None:
        self._partition, self._ids, self._aside = partition, ids, aside
        self._position: Position | None = None  # as it was read last
        self._lane: BatchLane | None = None  # carries whole batches; None: none was written yet
        # So that the rest of a chunk is acknowledged soon after its time (copy.chunk_seconds) is over.
        self._window = SendWindow(partition.settings.chunk_seconds / 4)
        self._writer: ChunkWriter | BatchWriter | None = None

    @property
    def written(self) -> int:
        return 0 if self._writer is None else self._writer.sent

    @property
    def first(self) -> Record | None:
        return None if self._writer is None else self._writer.first

    @cached_property
    def _limits(self) -> Mapping[str, str]:
        return topics.config(self._partition.target_admin, self._partition.key.target_topic)

    @property
    def largest_batch(self) -> int:
        """In bytes: what the target topic takes."""
        return int(self._limits[SIZE])

    @property
    def throttled(self) -> float:
        return self._partition.sender.throttling.seconds

    def fence(self) -> None:
        self.check_ids(self._ids)  # first: a deleted topic must not look like an unreachable one
        largest = batch_size(self._partition.target, self._largest_batch())
        self._partition.sender.options["batch.size"] = largest
        self._partition.fence()

    def _largest_batch(self) -> int:
        """In bytes: what the target topic takes, and the quarantine topic if records may go there."""
        limit = self.largest_batch
        if self._aside is None or "quarantine" not in self._aside.policy.policies:
            return limit
        admin, quarantine = self._partition.target_admin, self._aside.topic
        there = topics.states(admin, [quarantine])
        return min(limit, int(topics.config(admin, quarantine)[SIZE])) if there else limit

    def position(self) -> Position | None:
        self._position = self._partition.position()
        return self._position

    def check_target(self, position: Position) -> None:
        self._partition.check_target(position)

    def check_ids(self, ids: Ids) -> None:
        self._partition.check_ids(ids)

    def begin(self) -> ChunkWriter:
        self._writer = writer = self._partition.begin_chunk(
            self._new_writer,
            window=self._window,
            limits=self._limits,
            aside=self._aside_writer(),
        )
        return writer

    def begin_batches(self) -> BatchWriter:
        """Begin the next chunk, of whole batches. A session writes either these or records."""
        self._lane = lane = self._lane or self._new_lane()
        self._partition.transaction.begin()
        self._writer = writer = lane.writer(self._partition.check_between)
        return writer

    def _new_lane(self) -> BatchLane:
        """The first batches come: learn what brokers know this session by. The position is written again for that."""
        from kafka_replication.kafka.write.batch_producer import BatchLane

        partition, position = self._partition, self._position
        assert isinstance(partition.sender, TransactionalProducer)
        assert position is not None
        place = partition.sender.commit_alone(lambda: partition.write(position))
        return BatchLane(partition.key, partition.target, partition.sender, place)

    def _new_writer(self, **common: Any) -> ChunkWriter:
        return ChunkWriter(**common)

    def limits(self) -> TargetLimits:
        """What the target topic is certain to refuse, as it is configured now."""
        return TargetLimits.of(self._partition.key.target_topic, self._limits, self._partition.target)

    def _aside_writer(self) -> AsideWriter | None:
        if self._aside is None:
            return None
        return AsideWriter(
            rules=self._aside,
            limits=self.limits(),
            origin=Origin(self._partition.key, self._ids, self._aside.generation),
            transaction=self._partition.sender,
            partitions=lambda: self._quarantine_partitions,
        )

    @cached_property
    def _quarantine_partitions(self) -> int:
        assert self._aside is not None
        name = self._aside.topic
        there = topics.states(self._partition.target_admin, [name])
        if name not in there:
            raise Refused(f"the quarantine topic {name} does not exist on the target", "run again, which creates it")
        return len(there[name].partitions)

    def decide(self, position: Position, decided: Handled) -> None:
        """Commit what a person decided about failed records. The session writes nothing else."""
        self._partition.decide(position, decided)
        self._writer = None

    def commit(self, position: Position, receipt: Receipt) -> None:
        self._partition.commit(position, receipt)
        self._writer = None
        if self._lane is not None:
            self._lane.committed()

    def close(self) -> None:
        try:
            if self._lane is not None:
                self._lane.close()
        finally:
            self._partition.close()
