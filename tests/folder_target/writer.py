"""Sessions that write to a folder: nothing is there before the line that has all of it."""

from __future__ import annotations

from typing import Any

from kafka_replication.api import Fenced, Refused
from tests.folder_target.journal import Journal, commit, text_of


class FolderWriter:
    """A `TransactionPort`, which can also hold records."""

    def __init__(self, journal: Journal, writer_id: str, what: str) -> None:
        self.journal, self._id, self._what = journal, writer_id, what
        self._epoch: int | None = None
        self.records: list[list[Any]] = []
        self._entries: list[list[Any]] = []

    def fence(self) -> None:
        self.journal.append({"do": "fence", "by": self._id})
        self._epoch = self.journal.epochs[self._id]

    def begin(self) -> None:
        self.records, self._entries = [], []

    def send(self, topic: str, partition: int, key: bytes, value: bytes | None) -> None:
        there = self.journal.now().topics.get(topic)
        if there is None or partition >= there.partitions:
            raise Refused(f"{self._what}: there is no {topic}-{partition}", "create it")
        self._entries.append([topic, partition, text_of(key), text_of(value)])

    def flush(self) -> None: ...

    def commit(self) -> None:
        assert self._epoch is not None, "not fenced"
        commit(self.journal, self._id, self._epoch, self.records, self._entries, self._check)
        self.begin()

    def _check(self, journal: Journal) -> None:
        if journal.epochs.get(self._id) != self._epoch:
            raise Fenced(f"{self._what}: a newer session took over", "run again when the other run has ended")

    def close(self) -> None:
        self.begin()
