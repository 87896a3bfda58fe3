"""The ledger in a folder."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kafka_replication.config import Replication
from kafka_replication.ledger.entries import POSITIONS, RECEIPTS, Position, Verified
from kafka_replication.ledger.newest import NewestEntries
from kafka_replication.ledger.port import Damaged
from kafka_replication.ledger.receipts import Receipts, offsets_to_read
from kafka_replication.ledger.record_keys import position_key, verified_key
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.keys import LEDGER_PARTITIONS, PartitionKey
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.targets.unhidden import UnhiddenLedger
from tests.folder_target.journal import Journal, create


class FolderLedger(UnhiddenLedger):
    """A `Ledger`. Nothing is ever hidden: a transaction is one line of the journal."""

    def __init__(self, journal: Journal, replication: str) -> None:
        self._journal, self._replication = journal, replication

    def exists(self) -> bool:
        return {POSITIONS, RECEIPTS} <= self._journal.now().topics.keys()

    def ensure(self, replication: Replication) -> None:
        for topic in (RECEIPTS, POSITIONS):
            if topic not in self._journal.now().topics:
                create(self._journal, topic, LEDGER_PARTITIONS)

    def view(self, damaged: Damaged | None = None) -> LedgerView:
        return self._newest(POSITIONS, range(LEDGER_PARTITIONS)).view(damaged)

    def position(self, key: PartitionKey) -> Position | None:
        newest = self._newest(POSITIONS, [key.ledger_partition]).get(key.ledger_partition, position_key(key))
        entry = newest.entry() if newest else None
        assert entry is None or isinstance(entry, Position)
        return entry

    def verified(self, key: PartitionKey) -> Verified | None:
        newest = self._newest(POSITIONS, [key.ledger_partition]).get(key.ledger_partition, verified_key(key))
        entry = newest.entry() if newest else None
        assert entry is None or isinstance(entry, Verified)
        return entry

    def receipts(self, wanted: Mapping[PartitionKey, int | None]) -> Receipts:
        ends = self.receipt_ends()
        since = offsets_to_read(wanted, ends)
        partitions = {key.ledger_partition for key in wanted}
        bounds = {partition: OffsetRange(0, ends[partition]) for partition in partitions}
        return self._newest(RECEIPTS, partitions).receipts(since, bounds)

    def receipt_ends(self) -> Mapping[int, int]:
        there = self._journal.now().topics.get(RECEIPTS)
        return {number: len(there.entries.get(number, ())) if there else 0 for number in range(LEDGER_PARTITIONS)}

    def obstacle(self) -> ReplicationError | None:
        return None

    def _newest(self, topic: str, partitions: Collection[int]) -> NewestEntries:
        newest, there = NewestEntries(self._replication), self._journal.now().topics.get(topic)
        for partition in partitions:
            for offset, key, value in there.entries.get(partition, ()) if there else ():
                newest.add(topic, partition, offset, key, value)
        newest.log_foreign(topic)
        return newest
