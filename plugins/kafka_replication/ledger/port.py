"""The interface of the ledger: all entries are read and written through it.

`kafka_replication.kafka.ledger` implements it on two topics of the target, `kafka_replication.targets.journal_ledger`
on a target without transactions. `tests.conformance.ledger` checks every implementation against what is documented
here.

The transaction that writes ledger entries and, with most sinks, the copied records too.

A port's guarantee is ``atomic``, as described here, or ``ordered``: its `commit` sends the entries in their order,
those of one topic together, and those of the next one when all before are acknowledged. An ordered port fences nobody,
and a crash or an error in `commit` can leave the first entries written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from kafka_replication.config import Replication
from kafka_replication.ledger import codec
from kafka_replication.ledger.entries import POSITIONS, RECEIPTS, Entry, Position, Receipt, Verified
from kafka_replication.ledger.receipts import Receipts
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.offsets import PartitionKey, TopicPartition


class TransactionPort(Protocol):
    """One producer session under one stable transactional id, from fencing its predecessors to the first error.

    What an implementation guarantees:

    - All records sent between `begin` and `commit` become visible to ``read_committed`` readers together, or none does.
    - After `fence` returns, no earlier session of the same id can commit, and all that it committed is visible.
    - A session that was fenced never commits again: its calls raise Fenced.

    After any error only `close` may be called. After an error in `commit` the outcome is unknown: open a new session,
    fence, and read the ledger to learn it. All calls raise Fenced (a newer session took over; do not fence it in turn),
    Unreachable (a new session may succeed) or another ReplicationError, for which no retry helps.
    """

    def fence(self) -> None:
        """End every earlier session of this id, and wait until its open transaction is committed or aborted."""

    def begin(self) -> None:
        """Begin a transaction. Call it after `fence`, and only while no transaction is open."""

    def send(self, topic: str, partition: int, key: bytes, value: bytes | None) -> None:
        """Add one record to the open transaction. Returns before it is acknowledged. None deletes what the key has."""

    def flush(self) -> None:
        """Wait until all sent records are acknowledged. Raises Stalled if none is during the stall time-out."""

    def commit(self) -> None:
        """Flush and commit. If it returns, the transaction is committed."""

    def close(self) -> None:
        """Abort an open transaction, so that no reader has to wait for its time-out. Never raises."""


class Ledger(Protocol):
    """The ledger of one replication. One step or one worker uses one object.

    Every read returns at least what was committed when it was called: it first waits until no open transaction can
    hide a committed entry. An object remembers what it has read, and the next read continues there.
    Reading raises LedgerUnreadable for an entry of this replication that this version cannot read, Stalled if a
    transaction stays open too long, and Unreachable. How entries are written is the same for every kind of target.
    If a class that extends this says no more, nothing is ever hidden, and the target deletes old receipts by itself.
    """

    def exists(self) -> bool:
        """True if the ledger was created. Raises Refused if its topics have settings that are not allowed."""

    def ensure(self, replication: Replication) -> None:
        """Create missing topics. Raises Refused if existing ones have settings that are not allowed."""

    def view(self) -> LedgerView:
        """All entries of this replication except receipts; empty if no ledger exists."""

    def position(self, key: PartitionKey) -> Position | None:
        """The newest position of ``key``; None if the partition was never opened.

        A copier calls it after fencing, because only then no earlier producer can commit a newer one.
        """

    def verified(self, key: PartitionKey) -> Verified | None:
        """The newest entry about what is verified of ``key``; None if nothing was."""

    def receipts(self, wanted: Mapping[PartitionKey, int | None]) -> Receipts:
        """The newest receipts of these keys, of every generation. The value is the offset to start at, in the key's
        partition of the receipts topic. None: the log start.
        """

    def receipt_ends(self) -> Mapping[int, int]:
        """For each ledger partition its end offset: new receipts can be added only at or above it."""

    def undecided(self) -> set[PartitionKey]:
        """Keys of this replication with an entry in an open transaction. A dead run left it open, or a live run is
        about to commit it.
        """
        return set()

    def undecided_entries(self) -> list[tuple[PartitionKey, Entry]]:
        """The entries of these keys that are in open transactions: the newest of each kind. Raises LedgerUnreadable."""
        return []

    def hidden(self) -> Mapping[TopicPartition, int]:
        """The partitions of the ledger in which any transaction is open now, and the offset where the first one begins:
        entries behind it are not seen.
        """
        return {}

    def hidden_by(self, at: TopicPartition) -> str:
        """The facts about that transaction in one of them, behind a colon; empty if nothing is. Never raises."""
        return ""

    def obstacle(self) -> ReplicationError | None:
        """The reason why nothing can be written now: a retriable error where that may heal by itself. None: nothing
        shows that, or no ledger exists. Raises Unreachable.
        """

    def write(self, transaction: TransactionPort, key: PartitionKey, entry: Entry) -> None:
        """Add the entry to a transaction that the caller began and will commit."""
        topic = RECEIPTS if isinstance(entry, Receipt) else POSITIONS
        transaction.send(topic, key.ledger_partition, codec.key_of(key, entry), codec.encode(entry))

    def delete(self, transaction: TransactionPort, key: PartitionKey, receipt: Receipt) -> None:
        """Delete a receipt in such a transaction: its copies are gone."""
        transaction.send(RECEIPTS, key.ledger_partition, codec.key_of(key, receipt), None)

    def expire(self, may_go: Callable[[PartitionKey, Receipt], bool]) -> int:
        """Delete receipts of which ``may_go`` is true, and return how many: none if the target deletes old ones by
        itself, or was asked a short time ago. Call it with a lease. Raises Unreachable, Refused.
        """
        return 0
