"""The transaction of a target that has none: all of its entries are one conditional write of the head of the ledger."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import xxhash

from kafka_replication.model.errors import Fenced, ReplicationError
from kafka_replication.runtime import failpoints
from kafka_replication.targets.journal import Head, Journal, key_text


def writer_name(writer_id: str) -> str:
    """The short name of a writer in the head."""
    return str(xxhash.xxh3_64_hexdigest(writer_id.encode()))


class EntryWriter:
    """A `TransactionPort`: what is sent is kept until the commit, which is one conditional write."""

    def __init__(self, journal: Journal, writer_id: str, what: str, check: Callable[[str, int], None]) -> None:
        """``check`` raises the error about a topic that lacks this partition."""
        self._journal, self._writer, self._what, self._check = journal, writer_name(writer_id), what, check
        self.session: int | None = None  # the number of this session; higher than that of every earlier one
        self.epoch = 0  # that of the head when this session began
        self._entries: list[tuple[str, int, str, str | None]] = []

    def fence(self, *, copies: bool = False) -> None:
        """``copies``: this session also writes records, which are not a part of its commits."""
        head = self._journal.change(lambda head: head.fenced_by(self._writer, copies=copies))
        self.session, self.epoch = head.session, head.epoch

    def leave(self) -> None:
        """Say that all which this session wrote was committed, and that nothing more comes. Never raises."""
        if (session := self.session) is not None:
            with suppress(ReplicationError):
                self._journal.change(lambda head: head.left_by(self._writer, session))

    def begin(self) -> None:
        self._entries = []

    def send(self, topic: str, partition: int, key: bytes, value: bytes | None) -> None:
        self._check(topic, partition)
        self._entries.append((topic, partition, key_text(key), None if value is None else value.decode()))

    def flush(self) -> None: ...

    def commit(self) -> None:
        assert self.session is not None, "not fenced"
        self._journal.change(self._with_entries)
        self.begin()

    def _with_entries(self, head: Head) -> Head:
        after = self._checked(head).with_(self._entries)
        failpoints.reached("P2", self._what)
        return after

    def _checked(self, head: Head) -> Head:
        if head.sessions.get(self._writer) != self.session:
            raise Fenced(f"{self._what}: a newer session took over", "run again when the other run has ended")
        return head

    def close(self) -> None:
        self.begin()
