"""One partition's session on the target: fence, read the ledger, check the target, commit positions and receipts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property

from confluent_kafka.admin import AdminClient

from kafka_replication.config import Copy
from kafka_replication.kafka.client import clients
from kafka_replication.kafka.ledger import KafkaLedger
from kafka_replication.kafka.metadata import offsets, topics
from kafka_replication.kafka.read.cursor import first_record
from kafka_replication.kafka.write.chunk_writer import ChunkWriter
from kafka_replication.kafka.write.producer_base import Sender
from kafka_replication.kafka.write.quarantine_writer import AsideWriter
from kafka_replication.kafka.write.send_window import SendWindow
from kafka_replication.kafka.write.transactions import TransactionalProducer, longest_wait
from kafka_replication.ledger.entries import ONE_WRITER, Gap, Handled, Ids, Position, Receipt
from kafka_replication.ledger.port import Ledger
from kafka_replication.ledger.transaction import TransactionPort
from kafka_replication.model.delivery import EXACTLY_ONCE, LOSSY, Delivery
from kafka_replication.model.errors import ForeignWriter
from kafka_replication.model.keys import PartitionKey, consumer_group
from kafka_replication.model.offsets import TopicPartition, readable
from kafka_replication.runtime.deadline import Deadline


def check_end(at: TopicPartition, end: int, ours: int) -> None:
    """Raise ForeignWriter if a target partition that ``end``s here does not have all of our records, which were there
    up to ``ours``.
    """
    if end < ours:
        raise ForeignWriter(
            f"{at} on the target ends at {end}, but our records were there up to {ours}: the target lost data",
            "find out what truncated or restored it; replicate again under another name to an empty topic",
        )


class PartitionSession:
    """One producer session for one key. It owns the transaction, reads the ledger, and checks the target."""

    delivery: Delivery = EXACTLY_ONCE

    def __init__(
        self,
        key: PartitionKey,
        target: clients.ClientConfig,
        settings: Copy,
        deadline: Deadline,
        ledger: Ledger | None = None,
    ) -> None:
        self._ledger = ledger
        self.key, self.target, self.settings, self.deadline = key, target, settings, deadline
        transaction = TransactionalProducer(key.transactional_id, str(key.source), target, settings, deadline)
        self.transaction: TransactionPort = transaction  # of entries
        self.sender: Sender = transaction  # of records
        self.group = consumer_group(key.replication)
        self._known = 0  # below this target offset there are only our records
        self._marker = 0  # 1 if the control record of our last commit lies at or after `_known`
        self._after: int | None = None  # what lies from this target offset on is to be explained by the next chunk

    def fence(self) -> None:
        """Fence every earlier producer of this key, and wait for the end of its open transaction."""
        self.transaction.fence()

    def close(self) -> None:
        """Abort what is open."""
        self.transaction.close()

    @cached_property
    def target_admin(self) -> AdminClient:
        return clients.shared_admin(self.target)

    @cached_property
    def ledger(self) -> Ledger:
        """Reads the key's ledger partition once, later only the new entries."""
        return self._ledger or KafkaLedger(self.target, self.target_admin, self.key.replication, self.deadline)

    def position(self) -> Position | None:
        return self.ledger.position(self.key)

    def check_ids(self, ids: Ids) -> None:
        """Raise Refused unless the target topic still has this id."""
        seconds = self.deadline.within(topics.TIMEOUT)
        topics.check_id(self.target_admin, self.key.target_topic, ids.target_topic, "target", seconds)

    def check_target(self, position: Position) -> None:
        """Raise ForeignWriter if the target does not have what the position says.

        A session without transactions may have left records behind the position, and a profile that loses records may
        have fewer: who reads them back judges them. What was read back is there in any profile.
        """
        ours, end = position.target_end, self.target_end()
        if position.delivery in LOSSY:
            check_end(self.key.target, end, self._read_back_until(position))
        else:
            check_end(self.key.target, end, ours)
        if position.delivery == EXACTLY_ONCE:
            self._refuse_foreign_records(ours, end)
        else:
            self._after = min(ours, end)
        self._known, self._marker = end, 0

    def _read_back_until(self, position: Position) -> int:
        """Up to this target offset there was no hole when the records were read back."""
        verified = self.ledger.verified(self.key)
        return (verified.judged_until or 0) if verified and verified.generation == position.generation else 0

    def check_between(self, first: int) -> None:
        if first > self._known + self._marker:  # more than our control record lies between
            self._refuse_foreign_records(self._known, first)

    def _refuse_foreign_records(self, ours: int, until: int) -> None:
        """Raise ForeignWriter if a record lies between the end of our records and ``until``."""
        wanted = readable(max(self.target_start(), ours), until)
        foreign = first_record(self.target, self.group, self.key.target, wanted)
        if foreign is not None:
            raise ForeignWriter(
                f"{self.key.target} on the target holds a record at offset {foreign} that the ledger does not know"
                f" (ours end at {ours})",
                ONE_WRITER,
            )

    def begin_chunk(
        self,
        make: Callable[..., ChunkWriter],
        *,
        window: SendWindow,
        limits: Mapping[str, str],
        aside: AsideWriter | None = None,
    ) -> ChunkWriter:
        """Begin a transaction. Its writer, as ``make`` makes it; ``limits`` is the target topic's configuration."""
        self.transaction.begin()
        return make(
            key=self.key,
            transaction=self.sender,
            window=window,
            limits=limits,
            check_between=self.check_between,
            aside=aside,
        )

    def commit(self, position: Position, receipt: Receipt) -> None:
        """Write the receipt and the new position into the open transaction and commit it."""
        self.ledger.write(self.transaction, self.key, replace(position, delivery=EXACTLY_ONCE))
        self.ledger.write(self.transaction, self.key, replace(receipt, after=self._after))
        self.transaction.commit()
        self._after = None
        if receipt.parts and not receipt.spread:
            self._known, self._marker = position.target_end, 1

    def decide(self, position: Position, decided: Handled) -> None:
        """Write what a person decided about failed records, and the position, into the open transaction; commit it."""
        self.ledger.write(self.transaction, self.key, position)
        self.ledger.write(self.transaction, self.key, decided)
        self.transaction.commit()

    def target_end(self) -> int:
        """The target's end, after waiting until no open transaction hides records below it. Raises Stalled."""
        return offsets.stable_ends(self.target_admin, [self.key.target], longest_wait(self.settings, self.deadline))[
            self.key.target
        ]

    def target_start(self) -> int:
        """The target's log start offset now."""
        return offsets.log_starts(self.target_admin, [self.key.target])[self.key.target]

    def target_starts(self, position: Position) -> dict[int, int]:
        """The log start offsets now of the target partitions that have records of ours."""
        numbers = position.ends(self.key.source.partition)
        at = [TopicPartition(self.key.target_topic, number) for number in numbers]
        return {place.partition: start for place, start in offsets.log_starts(self.target_admin, at).items()}

    def move(self, position: Position, gap: Gap | None = None) -> None:
        """Commit a position without records, and the approved gap that it crosses."""
        self.transaction.begin()
        if gap is not None:
            self.ledger.write(self.transaction, self.key, gap)
        self.write(position)
        self.transaction.commit()

    def write(self, position: Position) -> None:
        """Write a position into the open transaction."""
        self.ledger.write(self.transaction, self.key, position)
