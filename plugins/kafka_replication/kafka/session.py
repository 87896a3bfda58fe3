"""One partition's session on the target: fence, read the ledger, check the target, commit positions and receipts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient

from kafka_replication.config import Copy
from kafka_replication.copying.sink import Batches, Record, SetAside
from kafka_replication.kafka import brokers, clients, offsets, topics
from kafka_replication.kafka.chunk_places import Ends, Offsets, check_end
from kafka_replication.kafka.chunk_writer import ChunkWriter, batch_size
from kafka_replication.kafka.cursor import RUN_AGAIN, first_record
from kafka_replication.kafka.ledger import KafkaLedger
from kafka_replication.kafka.producers import AcknowledgedProducer, SendWindow
from kafka_replication.kafka.quarantine import Origin, TargetLimits, largest_batch
from kafka_replication.kafka.quarantine_writer import AsideWriter
from kafka_replication.kafka.transactions import TransactionalProducer, longest_wait
from kafka_replication.ledger.entries import ONE_WRITER, Ids, Position, Receipt
from kafka_replication.ledger.port import Ledger
from kafka_replication.ledger.view import partitioning_of
from kafka_replication.model.choices import EXACTLY_ONCE, KEEP, LOSSY, SOLE, Delivery, Failure, Partitioning
from kafka_replication.model.errors import ForeignWriter, GapFound, Refused, TargetLost
from kafka_replication.model.offsets import (
    Coverage,
    OffsetRange,
    PartitionKey,
    TopicPartition,
    consumer_group,
    readable,
)
from kafka_replication.planning.lost_end import in_doubt, proven_lost
from kafka_replication.runtime.deadline import Deadline

if TYPE_CHECKING:
    from kafka_replication.kafka.batch_producer import BatchProducer


def refuse_left_open(admin: AdminClient, keys: Iterable[PartitionKey], hidden: Iterable[TopicPartition]) -> None:
    """Raise TargetLost if one of these target partitions has an open transaction of these keys that Kafka has ended
    without this partition. Nobody ends it any more, and the next commit of the same key would show what is in it,
    aborted or not.
    """
    ids = {key.transactional_id for key in keys}
    for at in hidden:
        if brokers.never_ends(admin, at, ids):
            raise TargetLost(
                f"{at} on the target has records of an earlier session of ours in a transaction that Kafka has ended"
                " without this partition",
                "run again, which ends it; where that run says that it cannot ([not-mended]), let"
                f" kafka-transactions.sh abort it: --topic {at.topic} --partition {at.partition}",
            )


class KafkaSession(ABC):
    """A `SinkSession` of a key's own producers: chunks, what is set aside, receipts and positions. The subclass says
    how it commits.
    """

    transaction: TransactionalProducer | AcknowledgedProducer  # writes entries of the ledger
    sender: TransactionalProducer | AcknowledgedProducer  # writes records

    def __init__(
        self,
        key: PartitionKey,
        target: clients.ClientConfig,
        settings: Copy,
        deadline: Deadline,
        ledger: Ledger | None = None,
        delivery: Delivery = EXACTLY_ONCE,
        *,
        ids: Ids | None = None,
        aside: SetAside | None = None,
    ) -> None:
        """``ledger`` is one that others read, too; None: this session reads the ledger anew. ``ids`` None: it writes
        entries of the ledger only.
        """
        self.key, self.target, self.settings, self.deadline = key, target, settings, deadline
        self._shared_ledger, self._delivery = ledger, delivery
        self.epochs: Mapping[int, int] = {}  # the leader epochs of target partitions in which our last records stand
        self._newest: Position | None = None  # the position as this session knows it
        self._ids, self._aside = ids, aside
        # So that the rest of a chunk is acknowledged soon after its time (`Copy.chunk_seconds`) is over.
        self._window = SendWindow(settings.chunk_seconds / 4)
        self._writer: ChunkWriter | BatchProducer | None = None  # of the open chunk; None: it is committed
        self._after: int | None = None  # the first target offset that no receipt accounts for yet
        self._make_producers()

    @abstractmethod
    def _make_producers(self) -> None:
        """Make `transaction` and `sender`. Nothing connects."""

    @cached_property
    def admin(self) -> AdminClient:
        return clients.shared_admin(self.target)

    @cached_property
    def ledger(self) -> Ledger:
        """Reads the key's ledger partition once, later only the new entries."""
        return self._shared_ledger or KafkaLedger(self.target, self.admin, self.key.replication, self.deadline)

    @cached_property
    def _limits(self) -> Mapping[str, str]:
        return topics.config(self.admin, self.key.target_topic)

    @cached_property
    def _target_limits(self) -> TargetLimits:
        return TargetLimits.of(self.key.target_topic, self._limits, self.target)

    @property
    def written(self) -> int:
        return 0 if self._writer is None else self._writer.sent

    @property
    def first(self) -> Record | None:
        return None if self._writer is None else self._writer.first

    @property
    def throttled(self) -> float:
        return self.sender.throttling.seconds

    @property
    def batches(self) -> Batches | None:
        return None

    def fence(self) -> None:
        """End what earlier sessions of this key left open. Where there are transactions, none of them commits later."""
        if self._ids is not None:
            self.check_ids(self._ids)  # first: a deleted topic must not look like an unreachable one
            limit = largest_batch(self._limits)
            if self._aside is not None and "quarantine" in self._aside.policy.policies:  # its records go there as well
                quarantine = self._aside.topic
                if topics.states(self.admin, [quarantine]):
                    limit = min(limit, largest_batch(topics.config(self.admin, quarantine)))
            options = self.sender.options
            options["batch.size"] = batch_size(self.target, limit)
            if self._aside is not None and self._aside.queue:
                # for headers of the quarantine, too
                options["queue.buffering.max.kbytes"] = (self._aside.queue >> 10) + 64
        self._fence_earlier()

    def _fence_earlier(self) -> None:
        self.transaction.fence()

    def close(self) -> None:
        """Give up what is not committed: abort what is open."""
        self.transaction.close()

    def position(self) -> Position | None:
        self._newest = self.ledger.position(self.key)
        return self._newest

    def _stand_at(self, position: Position) -> None:
        """This session has committed the chunk that was begun, and this position."""
        self._newest, self._writer = position, None

    def check_ids(self, ids: Ids) -> None:
        """Raise Refused unless the target topic still has this id."""
        seconds = self.deadline.within(topics.TIMEOUT)
        topics.check_id(self.admin, self.key.target_topic, ids.target_topic, "target", seconds)

    def refuse_change(self, partitioning: Partitioning, position: Position) -> None:
        """Raise Refused if records would go to other target partitions than those before them, and may not. A plan
        refuses that, too, but for one that was made before the file was changed.
        """
        before = partitioning_of(self.key, position)
        if before is not None and (before == KEEP) != partitioning.keeps:
            raise Refused(
                f"{self.key.source}: its records below offset {position.next_offset} were copied with partitioning"
                f" {before}, not {partitioning.name}",
                "plan again: the plan says what to do; in Airflow, clear the task plan of this run",
            )

    def check_target(self, position: Position) -> None:
        """Raise ForeignWriter if the target does not have what the position says. Our last record is looked for where
        the leader has changed since then, and where anything lies behind it: the end of the log proves nothing, as
        aborted attempts make it longer, and a leader of Kafka 3.9 keeps its epoch when it is started again.

        A session without transactions may have left records behind the position, and a profile that loses records may
        have fewer: who reads them back judges them. What was read back is there in any profile.
        """
        self.refuse_change(SOLE, position)
        at, ours, (end, epoch) = self.key.target, position.target_end, self._end()
        expected = ours
        if position.delivery in LOSSY:  # up to here there was no hole when the records were read back
            verified = self.ledger.verified(self.key)
            same = verified is not None and verified.generation == position.generation
            expected = (verified.judged_until or 0) if verified is not None and same else 0
        check_end(at, end, expected)
        if epoch is not None and position.delivery not in LOSSY:
            self.epochs = {at.partition: epoch}
            doubtful = in_doubt(self.key, position, self.epochs)
            if ours and end > ours + (1 if position.delivery == EXACTLY_ONCE else 0):
                doubtful = {at.partition: ours}
            self.refuse_lost_end(self.key, position, doubtful)
        if position.delivery == EXACTLY_ONCE:
            self.refuse_foreign_records(ours, end)
            self.follows(end, None)
        else:
            self.follows(end, min(ours, end))

    def _end(self) -> tuple[int, int | None]:
        """The target's end, after waiting until no open transaction hides records below it, and a leader epoch that it
        had before. Raises Stalled; raises TargetLost at once if the transaction is one that nobody ends.
        """
        at, most = self.key.target, longest_wait(self.settings, self.deadline)
        if (shown := offsets.shown_log(self.admin, at)) is not None:
            return shown
        epoch, refuse = offsets.leader_epoch(self.admin, at), partial(refuse_left_open, self.admin, [self.key])
        return offsets.stable_ends(self.admin, [at], most, hidden=refuse)[at], epoch

    def refuse_lost_end(self, key: PartitionKey, position: Position, doubtful: Mapping[int, int]) -> None:
        """Raise TargetLost if the last record of this key is not before these ends of its position, by target
        partition: without that record, what we append would cover the place of lost ones.

        Retention may explain that it is missing, and compaction.
        """
        if not doubtful:
            return
        starts = offsets.log_starts(self.admin, [TopicPartition(key.target_topic, number) for number in doubtful])
        missing = {
            at.partition: end
            for at, start in starts.items()
            if start < (end := doubtful[at.partition]) and self.first_record(at, OffsetRange(end - 1, end)) is None
        }
        if not missing:
            return
        receipts = self.ledger.receipts({key: position.receipts_from})
        config = topics.config(self.admin, key.target_topic)
        for number in proven_lost(self.ledger.view()[key], receipts, missing, config):
            raise TargetLost(
                f"{key.target_topic}-{number} on the target does not show our last record of {key.source}, which was at"
                f" offset {missing[number] - 1}: the target lost data, and other records lie there now",
                RUN_AGAIN,
            )

    def first_record(self, at: TopicPartition, wanted: OffsetRange) -> int | None:
        try:
            return first_record(self.target, consumer_group(self.key.replication), at, wanted)
        except GapFound:  # another leader may have been elected since its end was asked for
            check_end(at, offsets.high_watermarks(self.admin, [at])[at], wanted.from_ + 1)
            raise

    def refuse_foreign_records(self, ours: int, until: int) -> None:
        """Raise ForeignWriter if a record lies between the end of our records and ``until``."""
        if ours >= until:
            return
        at = self.key.target
        start = offsets.log_starts(self.admin, [at])[at]
        wanted = readable(max(start, ours), until)
        foreign = self.first_record(at, wanted)
        if foreign is not None:
            raise ForeignWriter(
                f"{at} on the target holds a record at offset {foreign} that the ledger does not know"
                f" (ours end at {ours})",
                ONE_WRITER,
            )

    @abstractmethod
    def follows(self, end: int, unexplained: int | None) -> None:
        """The target ends here. What lies from ``unexplained`` on, the receipt of the next chunk has to explain; None
        if there is nothing of this kind.
        """

    def begin(self) -> ChunkWriter:
        aside = None
        if self._aside is not None:
            assert self._ids is not None
            aside = AsideWriter(
                rules=self._aside,
                before=0 if self._newest is None else self._newest.set_aside,
                limits=self._target_limits,
                origin=Origin(self.key, self._ids, self._aside.generation),
                sender=self.sender,
                partitions=lambda: self._quarantine_partitions,
            )
        self._writer = writer = ChunkWriter(
            key=self.key,
            sender=self.sender,
            places=self._chunk_places(),
            window=self._window,
            limits=self._limits,
            aside=aside,
        )
        self._begin_transaction()
        return writer

    def _chunk_places(self) -> Ends | Offsets:
        return Ends(self.key.target.partition, self.lies)

    def _begin_transaction(self) -> None:
        self.transaction.begin()

    @cached_property
    def _quarantine_partitions(self) -> int:
        assert self._aside is not None
        name = self._aside.topic
        there = topics.states(self.admin, [name])
        if name not in there:
            raise Refused(f"the quarantine topic {name} does not exist on the target", "run again, which creates it")
        return len(there[name].partitions)

    def refusal(self, record: Record) -> Failure | None:
        return self._target_limits.refusal(record)

    def drop_uncommitted(self, offsets: Coverage) -> None:  # noqa: B027
        """Fencing has aborted them."""

    @abstractmethod
    def lies(self, sent: int, first: int, last: int) -> OffsetRange:
        """The place of a chunk of so many records. ``first`` and ``last`` are the acknowledged offsets of its ends, or
        `UNKNOWN`. Raises RefusedAt, ForeignWriter, TargetLost.
        """

    @abstractmethod
    def commit(self, position: Position, receipt: Receipt) -> int | None:
        """Commit the chunk that was begun, its receipt and the new position. Returns as that of `SinkSession`."""

    @abstractmethod
    def end_left_open(self, left_open: Iterable[TopicPartition], write: Callable[[], None] | None) -> None:
        """As that of `SinkSession`. Raises Unreachable if this session has committed nothing yet, and Refused where
        its profile has no transactions.
        """
