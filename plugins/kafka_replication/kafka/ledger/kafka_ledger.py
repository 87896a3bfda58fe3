"""`ledger.port.Ledger` on the target's two topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from confluent_kafka.admin import AdminClient

from kafka_replication.config import Replication
from kafka_replication.kafka.client import clients
from kafka_replication.kafka.ledger import topics, writable, writer
from kafka_replication.kafka.ledger.newest import NewestEntry
from kafka_replication.kafka.ledger.reader import ALL, LONGEST_TRANSACTION, Known, PositionsReader, ReceiptsReader
from kafka_replication.kafka.metadata import offsets, open_transactions
from kafka_replication.ledger.entries import (
    RECEIPTS,
    Deleted,
    Entry,
    Gap,
    Handled,
    Position,
    Receipt,
    Removed,
    Start,
    Verified,
)
from kafka_replication.ledger.port import Damaged
from kafka_replication.ledger.receipts import Receipts
from kafka_replication.ledger.record_keys import position_key, verified_key
from kafka_replication.ledger.transaction import TransactionPort
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import LedgerUnreadable, ReplicationError
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.model.rights import ClusterName
from kafka_replication.runtime.deadline import NEVER, Deadline


class KafkaLedger:
    """The ledger of one replication. The first view reads the positions topic; later views read only new entries.

    ``known`` makes it a follower, see `follower`. ``patience`` is for how many seconds it waits for a transaction that
    hides entries.
    """

    def __init__(
        self,
        config: clients.ClientConfig,
        admin: AdminClient,
        replication: str,
        deadline: Deadline = NEVER,
        known: Known | None = None,
        patience: float = LONGEST_TRANSACTION,
    ) -> None:
        self._admin, self._cluster = admin, ClusterName(str(config["bootstrap.servers"]), "target")
        self._positions = PositionsReader(config, admin, replication, deadline, known, patience)
        self._receipts = ReceiptsReader(config, admin, replication, deadline, known is None, patience)
        self._exists = False
        self._follow = partial(KafkaLedger, config, replication=replication)

    def follower(self) -> Callable[[AdminClient], KafkaLedger]:
        """Makes another reader of this ledger, for another thread, which begins with what this one has read.

        It never waits for an open transaction: it may miss an entry that was committed while an earlier transaction was
        open, and finds it later. It is for showing progress, not for deciding anything.
        """
        return partial(self._follow, known=self._positions.known())

    def exists(self) -> bool:
        """True if the topics exist. The brokers are asked until they do."""
        self._exists = self._exists or topics.exist(self._admin)
        return self._exists

    def ensure(self, replication: Replication) -> None:
        if not self._exists:
            topics.create_missing(self._admin, replication)
            self._exists = True

    def view(self, damaged: Damaged | None = None) -> LedgerView:
        if not self.exists():
            return LedgerView()
        positions, verified = dict[PartitionKey, Position](), dict[PartitionKey, Verified]()
        gaps: dict[PartitionKey, list[Gap]] = {}
        starts, deleted = dict[PartitionKey, Start](), dict[PartitionKey, Deleted]()
        removed, handled = dict[PartitionKey, Removed](), dict[PartitionKey, list[Handled]]()
        for newest in self._positions.entries():
            match _read(newest, damaged):
                case Position() as position:
                    positions[newest.key] = position
                case Verified() as entry:
                    verified[newest.key] = entry
                case Gap() as gap:
                    gaps.setdefault(newest.key, []).append(gap)
                case Start() as start:
                    starts[newest.key] = start
                case Deleted() as noted:
                    deleted[newest.key] = noted
                case Removed() as gone:
                    removed[newest.key] = gone
                case Handled() as decided:
                    handled.setdefault(newest.key, []).append(decided)
        in_order = {key: tuple(sorted(some, key=lambda gap: (gap.generation, gap.range))) for key, some in gaps.items()}
        decisions = {key: tuple(sorted(some, key=lambda entry: entry.time)) for key, some in handled.items()}
        return LedgerView(
            positions,
            verified,
            in_order,
            starts=starts,
            deleted=deleted,
            removed=removed,
            handled=decisions,
            owners=self._positions.owners(),
        )

    def position(self, key: PartitionKey) -> Position | None:
        newest = self._positions.entry(key.ledger_partition, position_key(key))
        entry = newest.entry() if newest else None
        assert entry is None or isinstance(entry, Position)
        return entry

    def verified(self, key: PartitionKey) -> Verified | None:
        newest = self._positions.entry(key.ledger_partition, verified_key(key))
        entry = newest.entry() if newest else None
        assert entry is None or isinstance(entry, Verified)
        return entry

    def receipts(self, wanted: Mapping[PartitionKey, int | None]) -> Receipts:
        return self._receipts.receipts(wanted)

    def receipt_ends(self) -> Mapping[int, int]:
        if not self.exists():
            return dict.fromkeys(ALL, 0)
        stable = offsets.last_stable(self._admin, [TopicPartition(RECEIPTS, partition) for partition in ALL])
        return {at.partition: offset for at, offset in stable.items()}

    def undecided(self) -> set[PartitionKey]:
        return self._positions.undecided() | self._receipts.undecided() if self.exists() else set()

    def hidden(self) -> Mapping[TopicPartition, int]:
        if not self.exists():
            return {}
        return {at: there.from_ for one in (self._positions, self._receipts) for at, there in one.hidden().items()}

    def hidden_by(self, at: TopicPartition) -> str:
        return open_transactions.named(self._admin, at)

    def obstacle(self) -> ReplicationError | None:
        return writable.obstacle(self._admin, self._cluster)

    def write(self, transaction: TransactionPort, key: PartitionKey, entry: Entry) -> None:
        writer.write(transaction, key, entry)

    def delete(self, transaction: TransactionPort, key: PartitionKey, receipt: Receipt) -> None:
        writer.delete(transaction, key, receipt)


def _read(newest: NewestEntry, damaged: Damaged | None) -> Entry | None:
    """The entry; None if it cannot be read, which is added to ``damaged``. Raises LedgerUnreadable without that."""
    try:
        return newest.entry()
    except LedgerUnreadable as error:
        if damaged is None:
            raise
        damaged[newest.kind, newest.key] = error
        return None
