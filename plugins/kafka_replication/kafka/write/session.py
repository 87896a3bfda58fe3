"""One partition's session on the target: fence, read the ledger, check the target, commit positions and receipts."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kafka_replication.kafka.write.commit import Commit
from kafka_replication.kafka.write.target_partition import TargetPartition, check_end
from kafka_replication.ledger.entries import Gap, Handled, Ids, Position, Receipt
from kafka_replication.ledger.port import Ledger
from kafka_replication.model.delivery import EXACTLY_ONCE, LOSSY
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.planning.lost_end import in_doubt


class PartitionSession:
    """One session of a key's own producers, which commits as its `Commit` does."""

    def __init__(self, target_partition: TargetPartition, how: Commit) -> None:
        self.target_partition, self.how = target_partition, how
        self.key, self.transaction, self.sender = target_partition.key, how.entries, how.records

    @property
    def ledger(self) -> Ledger:
        return self.target_partition.ledger

    def fence(self) -> None:
        """End what earlier sessions of this key left open. Where there are transactions, none of them commits later."""
        self.how.fence()

    def close(self) -> None:
        """Give up what is not committed."""
        self.how.close()

    def position(self) -> Position | None:
        return self.how.position()

    def check_ids(self, ids: Ids) -> None:
        """Raise Refused unless the target topic still has this id."""
        self.target_partition.check_ids(ids)

    def check_target(self, position: Position) -> None:
        """Raise ForeignWriter if the target does not have what the position says. Our last record is looked for where
        the leader has changed since then, and where anything lies behind it: the end of the log proves nothing, as
        aborted attempts make it longer, and a leader of Kafka 3.9 keeps its epoch when it is started again.

        A session without transactions may have left records behind the position, and a profile that loses records may
        have fewer: who reads them back judges them. What was read back is there in any profile.
        """
        ours, (end, epoch) = position.target_end, self.target_partition.end()
        check_end(self.key.target, end, self._read_back_until(position) if position.delivery in LOSSY else ours)
        if epoch is not None and position.delivery not in LOSSY:
            self.how.epochs = {self.key.target.partition: epoch}
            doubtful = in_doubt(self.key, position, self.how.epochs)
            if ours and end > ours + (1 if position.delivery == EXACTLY_ONCE else 0):
                doubtful = {self.key.target.partition: ours}
            self.target_partition.refuse_lost_end(self.key, position, doubtful)
        if position.delivery == EXACTLY_ONCE:
            self.target_partition.refuse_foreign_records(ours, end)
            self.how.follows(end, None)
        else:
            self.how.follows(end, min(ours, end))

    def _read_back_until(self, position: Position) -> int:
        """Up to this target offset there was no hole when the records were read back."""
        verified = self.ledger.verified(self.key)
        return (verified.judged_until or 0) if verified and verified.generation == position.generation else 0

    def commit(self, position: Position, receipt: Receipt) -> None:
        """Commit the chunk that was begun, its receipt and the new position."""
        self.how.commit(position, receipt)

    def decide(self, position: Position, decided: Handled) -> None:
        """Write what a person decided about failed records, and the position, into the open transaction; commit it."""
        self.ledger.write(self.transaction, self.key, position)
        self.ledger.write(self.transaction, self.key, decided)
        self.transaction.commit()

    def end_left_open(self, left_open: Iterable[TopicPartition], write: Callable[[], None] | None) -> None:
        """As that of `EntrySession`. Raises Unreachable if this session has committed nothing yet, and Refused where
        its profile has no transactions.
        """
        self.how.end_left_open(left_open, write)

    def move(self, position: Position, gap: Gap | None = None) -> None:
        """Commit a position without records, and the approved gap that it crosses."""
        self.transaction.begin()
        if gap is not None:
            self.ledger.write(self.transaction, self.key, gap)
        self.ledger.write(self.transaction, self.key, self.how.promised(position))
        self.transaction.commit()
