"""Commits of one session of a partition: in transactions (`Atomic`), or one after the other (`Ordered`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError

from kafka_replication.copying.sink import Batches, RefusedAt
from kafka_replication.kafka import offsets
from kafka_replication.kafka.chunk_places import UNKNOWN
from kafka_replication.kafka.cursor import RUN_AGAIN
from kafka_replication.kafka.producers import AcknowledgedProducer, SendWindow
from kafka_replication.kafka.quarantine import largest_batch
from kafka_replication.kafka.session import KafkaSession
from kafka_replication.kafka.transactions import TransactionalProducer
from kafka_replication.ledger.entries import RECEIPTS, Position, Receipt
from kafka_replication.model.choices import EXACTLY_ONCE, LOSSY
from kafka_replication.model.errors import Fenced, Refused, TargetLost
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.planning.lost_end import seen_in

if TYPE_CHECKING:
    from kafka_replication.kafka.batch_producer import BatchProducer


class Atomic(KafkaSession):
    """Writes records, receipt and position in one transaction. Brokers fence it once a newer session begins."""

    transaction: TransactionalProducer
    _own_until = 0  # below this target offset there are only our records
    _marker = 0  # 1 if the control record of our last commit lies at or after `_own_until`
    _lane: BatchProducer | None = None  # carries whole batches; None: none was written yet

    def _make_producers(self) -> None:
        key, what = self.key, str(self.key.source)
        self.transaction = self.sender = TransactionalProducer(
            key.transactional_id, what, self.target, self.settings, self.deadline
        )

    def follows(self, end: int, unexplained: int | None) -> None:
        self._own_until, self._marker, self._after = end, 0, unexplained

    def lies(self, sent: int, first: int, last: int) -> OffsetRange:
        """It has the target partition to itself."""
        if UNKNOWN in (first, last):
            error = KafkaError(KafkaError._TIMED_OUT, "the first and last record of a chunk were not acknowledged")
            raise self.sender.error(error, "sending")
        if last - first + 1 != sent:
            # A record in the middle was refused, or another producer writes there. Smaller chunks show which.
            raise RefusedAt(
                f"{self.key.target}: {sent} of our records lie at offsets {first} to {last}",
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
            raise _lost_while_we_wrote(self.key.target, first, follows)
        if first > follows:  # more than our control record lies between
            self.refuse_foreign_records(self._own_until, first)

    def commit(self, position: Position, receipt: Receipt) -> int | None:
        alone = self._after is None  # else the chunks before it, without transactions, are judged with it
        position = replace(seen_in(self.key, position, self.epochs), delivery=EXACTLY_ONCE)
        self.ledger.write(self.transaction, self.key, position)
        self.ledger.write(self.transaction, self.key, replace(receipt, after=self._after))
        self.transaction.commit()
        self._after = None
        if receipt.parts and not receipt.interleaved:
            self._own_until, self._marker = position.target_end, 1
        self._stand_at(position)
        if self._lane is not None:
            self._lane.committed()
        return self.transaction.stored_in.get(RECEIPTS) if alone else None

    def end_left_open(self, left_open: Iterable[TopicPartition], write: Callable[[], None] | None) -> None:
        # Only what mends something loads it.
        from kafka_replication.kafka.batch_producer import BatchProducer

        transaction = self.transaction
        stored, nothing = transaction.stored(), SendWindow(0.0)
        lanes = [BatchProducer(self.key, self.target, transaction, stored, window=nothing, at=at) for at in left_open]
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

    @property
    def batches(self) -> Batches | None:
        return Batches(largest_batch(self._limits), self._begin_batches)

    def _begin_batches(self) -> BatchProducer:
        """Begin the next chunk, of whole batches. A session writes either these or records."""
        if self._lane is None:
            from kafka_replication.kafka.batch_producer import BatchProducer

            # The first batches come: learn what brokers know this session by. The position is written again for that.
            position = self._newest
            assert position is not None
            stored = self.transaction.commit_alone(lambda: self.ledger.write(self.transaction, self.key, position))
            self._lane = BatchProducer(
                self.key,
                self.target,
                self.transaction,
                stored,
                window=self._window,
                check_between=self.check_between,
            )
        self._begin_transaction()
        self._lane.sent = 0
        self._writer = self._lane
        return self._lane

    def close(self) -> None:
        try:
            if self._lane is not None:
                self._lane.close()
        finally:
            super().close()


class Ordered(KafkaSession):
    """Sends records with the acknowledgement of their profile. Then it writes the receipt, and then the position.

    Ledger entries are always acknowledged by all replicas in sync. A crash leaves records, and perhaps a receipt, that
    the position does not cover: the next session sends them again. No broker fences a session. Before each commit it
    looks whether the position is still the one that it knows. A copier that sleeps just after that, and wakes up when
    another one has moved on, sets the position back: to a true position, from where records are doubled and none is
    lost.
    """

    transaction: AcknowledgedProducer
    sender: AcknowledgedProducer
    _chunk_from = 0  # where the records of the next chunk may begin

    def _make_producers(self) -> None:
        with_all = str(self.key.source), self.target, self.settings, self.deadline
        self.transaction = self.sender = AcknowledgedProducer("at_least_once", *with_all)
        if self._delivery in LOSSY:
            self.sender = AcknowledgedProducer(self._delivery, *with_all)

    def _fence_earlier(self) -> None:
        """End the transactions of this key, if the last one who wrote its position had any."""
        position = self.ledger.position(self.key)
        if position is not None and position.delivery == EXACTLY_ONCE:
            with closing(Atomic(self.key, self.target, self.settings, self.deadline)) as earlier:
                earlier.fence()
        super()._fence_earlier()

    def close(self) -> None:
        self.sender.close()
        super().close()

    def follows(self, end: int, unexplained: int | None) -> None:
        self._chunk_from, self._after = end, end if unexplained is None else unexplained

    def _begin_transaction(self) -> None:
        if self._newest is not None and self._newest.delivery == EXACTLY_ONCE:
            # The profile is in the position before the first record: after a crash, records behind the position are no
            # reason to refuse the partition.
            self._newest = replace(self._newest, delivery=self._delivery)
            self.transaction.begin()
            self.ledger.write(self.transaction, self.key, self._newest)
            self.transaction.commit()
        self.sender.begin_chunk()
        super()._begin_transaction()

    def lies(self, sent: int, first: int, last: int) -> OffsetRange:  # noqa: ARG002  # later ones may be lost
        """Between two ends of the log. Where records can be lost, and where another copier may be at work, this is
        where they are expected: who reads them back finds out what is there.
        """
        target, start = self.key.target, self._chunk_from
        self._chunk_from += sent
        if self._delivery not in LOSSY:
            if UNKNOWN < first < start:
                raise _lost_while_we_wrote(target, first, start)
            self._chunk_from = max(self._chunk_from, offsets.high_watermarks(self.admin, [target])[target])
        return OffsetRange(start, self._chunk_from)

    def commit(self, position: Position, receipt: Receipt) -> None:
        """Write the receipt, and when it is acknowledged the new position. Raises Fenced if another copier did;
        OutOfTime if the range was given up, because it may be dealt to another copier then.
        """
        key = self.key
        self.deadline.check_stopped(f"{key.source}: committing")
        if self.ledger.position(key) != self._newest:
            raise Fenced(
                f"{key.source}: another copier has written a position since this one read it",
                "run again when the other run has ended",
            )
        position = seen_in(key, replace(position, delivery=self._delivery), self.epochs)
        self.ledger.write(self.transaction, key, replace(receipt, delivery=self._delivery, after=self._after))
        self.ledger.write(self.transaction, key, position)
        self.transaction.commit()
        self._stand_at(position)
        if receipt.parts:
            self._after = position.target_end

    def end_left_open(self, left_open: Iterable[TopicPartition], write: Callable[[], None] | None) -> None:  # noqa: ARG002
        """Raise Refused: only a transaction ends what one has left open."""
        raise Refused(
            f"{self.key.target}: delivery: {self._delivery} has no transaction that could end what an earlier one has"
            " left open",
            "let a run with delivery: exactly_once mend it",
        )


def _lost_while_we_wrote(at: TopicPartition, first: int, follows: int) -> TargetLost:
    return TargetLost(
        f"{at} on the target lost its end while we wrote: a record of ours has the offset {first}, but those before it"
        f" reached up to {follows}",
        RUN_AGAIN,
    )
