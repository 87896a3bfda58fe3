"""Commits of one session of a partition: in transactions (`Atomic`), or one after the other (`Ordered`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import replace

from confluent_kafka import KafkaError

from kafka_replication.kafka.read.cursor import RUN_AGAIN
from kafka_replication.kafka.write.producers.plain_producer import AcknowledgedProducer
from kafka_replication.kafka.write.producers.send_window import SendWindow
from kafka_replication.kafka.write.producers.transactions import TransactionalProducer
from kafka_replication.kafka.write.target_partition import TargetPartition
from kafka_replication.ledger.entries import Position, Receipt
from kafka_replication.model.delivery import EXACTLY_ONCE, LOSSY, Delivery
from kafka_replication.model.errors import Fenced, Refused, TargetLost
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.planning.lost_end import seen_in
from kafka_replication.sinks.port import RefusedAt

UNKNOWN = -1  # no target offset acknowledged yet


class Atomic:
    """Writes records, receipt and position in one transaction. Brokers fence it once a newer session begins."""

    def __init__(self, target_partition: TargetPartition) -> None:
        self.target_partition = target_partition
        key = target_partition.key
        self.entries = self.records = TransactionalProducer(
            key.transactional_id,
            str(key.source),
            target_partition.target,
            target_partition.settings,
            target_partition.deadline,
        )
        self.epochs: Mapping[int, int] = {}  # the leader epochs of target partitions in which our last records stand
        self._newest: Position | None = None  # as it was read last
        self._own_until = 0  # below this target offset there are only our records
        self._marker = 0  # 1 if the control record of our last commit lies at or after `_own_until`
        self._after: int | None = None  # what lies from this target offset on is to be explained by the next chunk

    def fence(self) -> None:
        """Fence every earlier producer of this key, and wait for the end of its open transaction."""
        self.entries.fence()

    def close(self) -> None:
        """Abort what is open."""
        self.entries.close()

    def position(self) -> Position | None:
        self._newest = self.target_partition.ledger.position(self.target_partition.key)
        return self._newest

    def follows(self, end: int, unexplained: int | None) -> None:
        """The target ends here. What lies from ``unexplained`` on, the receipt of the next chunk has to explain; None
        if there is nothing of this kind.
        """
        self._own_until, self._marker, self._after = end, 0, unexplained

    def begin(self) -> None:
        self.entries.begin()

    def lies(self, sent: int, first: int, last: int) -> OffsetRange:
        """The place of a chunk of so many records that has the target partition to itself. ``first`` and ``last`` are
        the acknowledged offsets of its ends, or `UNKNOWN`. Raises RefusedAt, ForeignWriter.
        """
        target = self.target_partition.key.target
        if UNKNOWN in (first, last):
            error = KafkaError(KafkaError._TIMED_OUT, "the first and last record of a chunk were not acknowledged")
            raise self.records.error(error, "sending")
        if last - first + 1 != sent:
            # A record in the middle was refused, or another producer writes there. Smaller chunks show which.
            raise RefusedAt(
                f"{target}: {sent} of our records lie at offsets {first} to {last}",
                "stop any other writer: a target belongs to one replication alone",
                None,
                sent,
            )
        self.check_between(first)
        return OffsetRange(first, last + 1)

    def check_between(self, first: int) -> None:
        """Raise ForeignWriter if a foreign record lies between our last commit and this target offset."""
        follows = self._own_until + self._marker
        if first < follows:
            raise _lost_while_we_wrote(self.target_partition.key.target, first, follows)
        if first > follows:  # more than our control record lies between
            self.target_partition.refuse_foreign_records(self._own_until, first)

    def commit(self, position: Position, receipt: Receipt) -> None:
        ledger, key = self.target_partition.ledger, self.target_partition.key
        position = seen_in(key, position, self.epochs)
        ledger.write(self.entries, key, replace(position, delivery=EXACTLY_ONCE))
        ledger.write(self.entries, key, replace(receipt, after=self._after))
        self.entries.commit()
        self._after = None
        if receipt.parts and not receipt.interleaved:
            self._own_until, self._marker = position.target_end, 1

    def promised(self, position: Position) -> Position:
        """A position that moves without records, as it is written. What a session without transactions left behind it
        is still to be explained.
        """
        return position

    def end_left_open(self, left_open: Iterable[TopicPartition], write: Callable[[], None] | None) -> None:
        """End what an earlier session left open in these partitions; see `EntrySession`."""
        # Only what mends something loads it.
        from kafka_replication.kafka.write.producers.batch_producer import BatchLane

        key, target, transaction = self.target_partition.key, self.target_partition.target, self.entries
        stored, nothing = transaction.stored(), SendWindow(0.0)
        lanes = [BatchLane(key, target, transaction, stored, window=nothing, at=at) for at in left_open]
        transaction.begin()
        try:
            if write is not None:
                write()
                transaction.flush()  # a death between the next two steps drops what was left open
            for lane in lanes:
                lane.join()
            if write is not None:
                transaction.commit()
                for lane in lanes:
                    lane.committed()
        finally:
            for lane in lanes:
                lane.close()

    def write_again(self) -> tuple[TopicPartition, int]:
        """Commit the position as it was read last, alone. Return where that entry lies."""
        position = self._newest
        assert position is not None
        return self.entries.commit_alone(
            lambda: self.target_partition.ledger.write(self.entries, self.target_partition.key, position)
        )


class Ordered:
    """Sends records with the acknowledgement of their profile. Then it writes the receipt, and then the position.

    Ledger entries are always acknowledged by all replicas in sync. A crash leaves records, and perhaps a receipt, that
    the position does not cover: the next session sends them again. No broker fences a session. Before each commit it
    looks whether the position is still the one that it knows. A copier that sleeps just after that, and wakes up when
    another one has moved on, sets the position back: to a true position, from where records are doubled and none is
    lost.
    """

    def __init__(self, target_partition: TargetPartition, delivery: Delivery) -> None:
        self.target_partition, self._delivery = target_partition, delivery
        what = str(target_partition.key.source)
        self.entries = AcknowledgedProducer(
            "at_least_once", what, target_partition.target, target_partition.settings, target_partition.deadline
        )
        self.records = self.entries
        if delivery in LOSSY:
            self.records = AcknowledgedProducer(
                delivery, what, target_partition.target, target_partition.settings, target_partition.deadline
            )
        self.epochs: Mapping[int, int] = {}  # as in `Atomic`
        self._newest: Position | None = None  # the position as this session knows it
        self._chunk_from = 0  # where the records of the next chunk may begin
        self._after: int | None = None  # what lies from this target offset on is to be explained by the next chunk

    def fence(self) -> None:
        """End the transactions of this key, if the last one who wrote its position had any."""
        target_partition = self.target_partition
        position = target_partition.ledger.position(target_partition.key)
        if position is not None and position.delivery == EXACTLY_ONCE:
            with closing(Atomic(target_partition)) as earlier:
                earlier.fence()
        self.entries.fence()

    def close(self) -> None:
        self.records.close()
        self.entries.close()

    def position(self) -> Position | None:
        self._newest = self.target_partition.ledger.position(self.target_partition.key)
        return self._newest

    def follows(self, end: int, unexplained: int | None) -> None:
        self._chunk_from, self._after = end, end if unexplained is None else unexplained

    def begin(self) -> None:
        self._announce()
        self.records.begin_chunk()
        self.entries.begin()

    def _announce(self) -> None:
        """Write the profile into the position, before the first record: after a crash, records behind the position are
        no reason to refuse the partition.
        """
        if self._newest is not None and self._newest.delivery == EXACTLY_ONCE:
            self._newest = self.promised(self._newest)
            self.entries.begin()
            self.target_partition.ledger.write(self.entries, self.target_partition.key, self._newest)
            self.entries.commit()

    def lies(self, sent: int, first: int, last: int) -> OffsetRange:  # noqa: ARG002  # later ones may be lost
        """Between two ends of the log. Where records can be lost, and where another copier may be at work, this is
        where they are expected: who reads them back finds out what is there.
        """
        start, self._chunk_from = self._chunk_from, self._chunk_from + sent
        if self._delivery not in LOSSY:
            if UNKNOWN < first < start:
                raise _lost_while_we_wrote(self.target_partition.key.target, first, start)
            self._chunk_from = max(self._chunk_from, self.target_partition.high_watermark())
        return OffsetRange(start, self._chunk_from)

    def commit(self, position: Position, receipt: Receipt) -> None:
        """Write the receipt, and when it is acknowledged the new position. Raises Fenced if another copier did;
        OutOfTime if the range was given up, because it may be dealt to another copier then.
        """
        ledger, key = self.target_partition.ledger, self.target_partition.key
        self.target_partition.deadline.check_stopped(f"{key.source}: committing")
        if ledger.position(key) != self._newest:
            raise Fenced(
                f"{key.source}: another copier has written a position since this one read it",
                "run again when the other run has ended",
            )
        position = seen_in(key, self.promised(position), self.epochs)
        ledger.write(self.entries, key, replace(receipt, delivery=self._delivery, after=self._after))
        ledger.write(self.entries, key, position)
        self.entries.commit()
        self._newest = position
        if receipt.parts:
            self._after = position.target_end

    def promised(self, position: Position) -> Position:
        return replace(position, delivery=self._delivery)

    def end_left_open(self, left_open: Iterable[TopicPartition], write: Callable[[], None] | None) -> None:  # noqa: ARG002
        """Raise Refused: only a transaction ends what one has left open."""
        raise Refused(
            f"{self.target_partition.key.target}: delivery: {self._delivery} has no transaction that could end what an"
            " earlier one has left open",
            "let a run with delivery: exactly_once mend it",
        )


def _lost_while_we_wrote(at: TopicPartition, first: int, follows: int) -> TargetLost:
    return TargetLost(
        f"{at} on the target lost its end while we wrote: a record of ours has the offset {first}, but those before it"
        f" reached up to {follows}",
        RUN_AGAIN,
    )


Commit = Atomic | Ordered
