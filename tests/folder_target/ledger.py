"""The ledger in a folder."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_replication.api.targets import LEDGER, LEDGER_PARTITIONS, LogEntry
from tests.folder_target.journal import Journal, create


class FolderLog:
    """An `EntryLog`. Nothing is ever hidden: a transaction is one line of the journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def exists(self) -> bool:
        return self._journal.now().topics.keys() >= set(LEDGER)

    def create(self) -> None:
        for topic in LEDGER:
            if topic not in self._journal.now().topics:
                create(self._journal, topic, LEDGER_PARTITIONS)

    def entries(self, topic: str, partition: int) -> Iterable[LogEntry]:
        there = self._journal.now().topics.get(topic)
        return there.entries.get(partition, ()) if there else ()

    def end(self, topic: str, partition: int) -> int:
        return len([*self.entries(topic, partition)])
