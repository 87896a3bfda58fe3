"""`ledger.port.Ledger` on the target's two topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain

from confluent_kafka.admin import AdminClient

from kafka_replication.config import Replication
from kafka_replication.kafka.client import clients
from kafka_replication.kafka.ledger import reader, topics, writable
from kafka_replication.kafka.ledger.reader import ALL, LONGEST_TRANSACTION, PositionsReader, ReadEntries, ReceiptsReader
from kafka_replication.kafka.ledger.shared import SharedReadings
from kafka_replication.kafka.metadata import offsets, open_transactions
from kafka_replication.ledger import writing
from kafka_replication.ledger.entries import RECEIPTS, Entry, Position, Receipt, Verified
from kafka_replication.ledger.newest import NewestEntry
from kafka_replication.ledger.receipts import Receipts
from kafka_replication.ledger.record_keys import position_key, verified_key
from kafka_replication.ledger.transaction import TransactionPort
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.model.rights import ClusterName
from kafka_replication.runtime.deadline import NEVER, Deadline


class KafkaLedger:
    """The ledger of one replication. The first view reads the positions topic; later views read only new entries.

    ``read_before`` makes it a follower, see `follower`. ``patience`` is for how many seconds it waits for a transaction
    that hides entries. ``shared`` is asked first: it answers several threads at a time.
    """

    def __init__(
        self,
        config: clients.ClientConfig,
        admin: AdminClient,
        replication: str,
        deadline: Deadline = NEVER,
        read_before: ReadEntries | None = None,
        patience: float = LONGEST_TRANSACTION,
        shared: SharedReadings | None = None,
    ) -> None:
        self._shared = shared
        self._admin, self._cluster = admin, ClusterName(str(config["bootstrap.servers"]), "target")
        self._positions = PositionsReader(config, admin, replication, deadline, read_before, patience)
        self._receipts = ReceiptsReader(config, admin, replication, deadline, read_before is None, patience)
        self._exists = bool(read_before and read_before.topic_id)
        self._follow = partial(KafkaLedger, config, replication=replication)

    def follower(self) -> Callable[[AdminClient], KafkaLedger]:
        """Makes another reader of this ledger, for another thread, which begins with what this one has read.

        It never waits for an open transaction: it may miss an entry that was committed while an earlier transaction was
        open, and finds it later. It is for showing progress, not for deciding anything.
        """
        return partial(self._follow, read_before=self._positions.read_entries())

    def exists(self) -> bool:
        """True if the topics exist. The brokers are asked until they do."""
        self._exists = self._exists or len(topics.existing(self._admin)) == 2
        return self._exists

    def ensure(self, replication: Replication) -> None:
        if not self._exists:
            topics.create_missing(self._admin, replication)
            self._exists = True

    def view(self) -> LedgerView:
        if not self.exists():
            return LedgerView()
        return self._positions.entries().view()

    def position(self, key: PartitionKey) -> Position | None:
        newest = self._newest(key.ledger_partition, position_key(key))
        entry = newest.entry() if newest else None
        assert entry is None or isinstance(entry, Position)
        return entry

    def verified(self, key: PartitionKey) -> Verified | None:
        newest = self._newest(key.ledger_partition, verified_key(key))
        entry = newest.entry() if newest else None
        assert entry is None or isinstance(entry, Verified)
        return entry

    def _newest(self, partition: int, record_key: bytes) -> NewestEntry | None:
        if self._shared is not None and (found := self._shared.entry(partition, record_key)) is not None:
            return found.entry
        return self._positions.entry(partition, record_key)

    def receipts(self, wanted: Mapping[PartitionKey, int | None]) -> Receipts:
        if self._shared is not None and len(wanted) == 1:
            (asked,) = wanted.items()
            if (found := self._shared.receipts(*asked)) is not None:
                return found
        return self._receipts.receipts(wanted)

    def receipt_ends(self) -> Mapping[int, int]:
        if not self.exists():
            return dict.fromkeys(ALL, 0)
        stable = offsets.last_stable(self._admin, [TopicPartition(RECEIPTS, partition) for partition in ALL])
        return {at.partition: offset for at, offset in stable.items()}

    def undecided(self) -> set[PartitionKey]:
        return {newest.key for newest in self._undecided()}

    def undecided_entries(self) -> list[tuple[PartitionKey, Entry]]:
        return [(newest.key, newest.entry()) for newest in self._undecided()]

    def _undecided(self) -> Iterator[NewestEntry]:
        if self.exists() and (hidden := reader.hidden(self._admin)):
            yield from chain(self._positions.undecided(hidden), self._receipts.undecided(hidden))

    def hidden(self) -> Mapping[TopicPartition, int]:
        return {at: there.from_ for at, there in reader.hidden(self._admin).items()} if self.exists() else {}

    def hidden_by(self, at: TopicPartition) -> str:
        return open_transactions.named(self._admin, at)

    def obstacle(self) -> ReplicationError | None:
        return writable.obstacle(self._admin, self._cluster)

    def write(self, transaction: TransactionPort, key: PartitionKey, entry: Entry) -> None:
        writing.write(transaction, key, entry)

    def delete(self, transaction: TransactionPort, key: PartitionKey, receipt: Receipt) -> None:
        writing.delete(transaction, key, receipt)

    def expire(self, may_go: Callable[[PartitionKey, Receipt], bool]) -> int:  # noqa: ARG002
        return 0  # the broker does, by the topic's retention.ms
