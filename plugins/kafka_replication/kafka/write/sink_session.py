"""One partition's way into Kafka: chunks, what is set aside, receipts and positions, by one session of its producer."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING

from kafka_replication.kafka.metadata import topics
from kafka_replication.kafka.quarantine.quarantine_record import Origin
from kafka_replication.kafka.quarantine.target_limits import TargetLimits, largest_batch
from kafka_replication.kafka.write.batch_size import batch_size
from kafka_replication.kafka.write.chunk_writer import ChunkWriter
from kafka_replication.kafka.write.commit import Atomic
from kafka_replication.kafka.write.first_and_last import FirstAndLast
from kafka_replication.kafka.write.producers.send_window import SendWindow
from kafka_replication.kafka.write.quarantine_writer import AsideWriter
from kafka_replication.kafka.write.session import PartitionSession
from kafka_replication.ledger.entries import Handled, Ids, Position, Receipt
from kafka_replication.model.errors import Refused
from kafka_replication.model.failures import Failure
from kafka_replication.sinks.failure_budget import SetAside
from kafka_replication.sinks.port import Batches, Record

if TYPE_CHECKING:  # only a worker that needs it loads it
    from kafka_replication.kafka.write.multi_partition import EachOffset
    from kafka_replication.kafka.write.producers.batch_producer import BatchLane, BatchWriter


class KafkaSinkSession:
    """A `SinkSession`: one session of a partition's producers. ``batches_in`` is what commits whole batches; None: it
    takes none.
    """

    def __init__(
        self,
        partition: PartitionSession,
        layout: FirstAndLast | EachOffset,
        ids: Ids,
        aside: SetAside | None = None,
        batches_in: Atomic | None = None,
    ) -> None:
        self._partition, self._layout, self._ids, self._aside = partition, layout, ids, aside
        self._batches_in = batches_in
        self._set_aside = 0  # records of this generation, as the newest position says
        self._lane: BatchLane | None = None  # carries whole batches; None: none was written yet
        # So that the rest of a chunk is acknowledged soon after its time (copy.chunk_seconds) is over.
        self._window = SendWindow(partition.target_partition.settings.chunk_seconds / 4)
        self._writer: ChunkWriter | BatchWriter | None = None

    @property
    def written(self) -> int:
        return 0 if self._writer is None else self._writer.sent

    @property
    def first(self) -> Record | None:
        return None if self._writer is None else self._writer.first

    @cached_property
    def _limits(self) -> Mapping[str, str]:
        return topics.config(self._partition.target_partition.admin, self._partition.key.target_topic)

    @property
    def throttled(self) -> float:
        return self._partition.sender.throttling.seconds

    def fence(self) -> None:
        self.check_ids(self._ids)  # first: a deleted topic must not look like an unreachable one
        largest = batch_size(self._partition.target_partition.target, self._largest_batch())
        options = self._partition.sender.options
        options["batch.size"] = largest
        if self._aside is not None and self._aside.queue:
            options["queue.buffering.max.kbytes"] = (self._aside.queue >> 10) + 64  # for headers of the quarantine, too
        self._partition.fence()

    def _largest_batch(self) -> int:
        """In bytes: the batch that the target topic takes, and the quarantine topic if records may go there."""
        limit = largest_batch(self._limits)
        if self._aside is None or "quarantine" not in self._aside.policy.policies:
            return limit
        admin, quarantine = self._partition.target_partition.admin, self._aside.topic
        there = topics.states(admin, [quarantine])
        return min(limit, largest_batch(topics.config(admin, quarantine))) if there else limit

    def position(self) -> Position | None:
        position = self._partition.position()
        # Also what a session committed that was not reported so.
        self._set_aside = 0 if position is None else position.set_aside
        return position

    def check_target(self, position: Position) -> None:
        self._layout.check_target(position)

    def check_ids(self, ids: Ids) -> None:
        self._partition.check_ids(ids)

    def begin(self) -> ChunkWriter:
        self._writer = writer = ChunkWriter(
            key=self._partition.key,
            sender=self._partition.sender,
            places=self._layout.begin(),
            window=self._window,
            limits=self._limits,
            aside=self._aside_writer(),
        )
        self._partition.how.begin()
        return writer

    @property
    def batches(self) -> Batches | None:
        if self._batches_in is None:
            return None
        return Batches(largest_batch(self._limits), partial(self._begin_batches, self._batches_in))

    def _begin_batches(self, commit: Atomic) -> BatchWriter:
        """Begin the next chunk, of whole batches. A session writes either these or records."""
        self._lane = lane = self._lane or _new_lane(commit, self._window)
        commit.begin()
        self._writer = writer = lane.writer(commit.check_between)
        return writer

    def limits(self) -> TargetLimits:
        """The limits of the target topic, as it is configured now."""
        return TargetLimits.of(self._partition.key.target_topic, self._limits, self._partition.target_partition.target)

    def _aside_writer(self) -> AsideWriter | None:
        if self._aside is None:
            return None
        return AsideWriter(
            rules=self._aside,
            before=self._set_aside,
            limits=self.limits(),
            origin=Origin(self._partition.key, self._ids, self._aside.generation),
            sender=self._partition.sender,
            partitions=lambda: self._quarantine_partitions,
        )

    @cached_property
    def _quarantine_partitions(self) -> int:
        assert self._aside is not None
        name = self._aside.topic
        there = topics.states(self._partition.target_partition.admin, [name])
        if name not in there:
            raise Refused(f"the quarantine topic {name} does not exist on the target", "run again, which creates it")
        return len(there[name].partitions)

    def refusal(self, record: Record) -> Failure | None:
        """The failure of a record that the target is certain to refuse."""
        return self.limits().refusal(record)

    def decide(self, position: Position, decided: Handled) -> None:
        """Commit what a person decided about failed records. The session writes nothing else."""
        self._partition.decide(position, decided)
        self._writer = None

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


def _new_lane(commit: Atomic, window: SendWindow) -> BatchLane:
    """The first batches come: learn what brokers know this session by. The position is written again for that."""
    from kafka_replication.kafka.write.producers.batch_producer import BatchLane

    at = commit.target_partition
    return BatchLane(at.key, at.target, commit.entries, commit.write_again(), window=window)
