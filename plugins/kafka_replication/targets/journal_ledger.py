"""The ledger on a journal, and its writer: the transaction of a target that has none. All of its entries are one
conditional write of the head.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

import xxhash

from kafka_replication.config import Replication
from kafka_replication.ledger import codec
from kafka_replication.ledger.codec import decode_key
from kafka_replication.ledger.entries import POSITIONS, RECEIPTS, Position, Receipt, Verified
from kafka_replication.ledger.port import Ledger
from kafka_replication.ledger.receipts import Receipts, offsets_to_read
from kafka_replication.ledger.values import LedgerEntry
from kafka_replication.ledger.view import LedgerView, NewestEntries
from kafka_replication.model.errors import Fenced, LedgerUnreadable, ReplicationError
from kafka_replication.model.offsets import LEDGER_PARTITIONS, OffsetRange, PartitionKey, TopicPartition
from kafka_replication.model.times import now
from kafka_replication.runtime import failpoints
from kafka_replication.targets.journal import (
    AT_ONCE,
    EXPIRE_SECONDS,
    Head,
    Journal,
    JournalStorage,
    LedgerRecord,
    Writer,
    Writers,
    key_text,
)

E = TypeVar("E", bound=LedgerEntry)


class JournalLedger(Ledger):
    """A `Ledger`. Nothing is ever hidden: a transaction is one write."""

    def __init__(self, shelf: JournalStorage) -> None:
        self._shelf, self._replication = shelf, shelf.replication
        self.journal = Journal(shelf)
        self._positions = NewestEntries(shelf.replication)
        self._read = dict[str, int]()  # by replication: all positions below this offset were read

    def exists(self) -> bool:
        return self._shelf.ledger_exists()

    def ensure(self, replication: Replication) -> None:
        if not self.exists():
            self._shelf.create_ledger()

    def view(self) -> LedgerView:
        if self.exists():
            for head in self._shelf.heads():
                if head.replication != self._replication:
                    self._read_on(head)
            self._read_on(self._shelf.head())
            self._positions.log_foreign(POSITIONS)
        return self._positions.view()

    def _read_on(self, head: Head) -> None:
        since = self._read.get(head.replication, 0)
        if head.next_offset < since:  # the ledger was created again
            self._positions, self._read, since = NewestEntries(self._replication), {}, 0
        for record in self.journal.since(head, since, [POSITIONS]):
            _add(self._positions, record)
        self._read[head.replication] = head.next_offset

    def writers(self) -> Writers:
        """By partition of the target the key of this replication that writes there, and its position."""
        if self.exists():  # the heads of others, which may be large, are not asked for
            self._read_on(self._shelf.head())
        found = dict[TopicPartition, Writer]()
        for key, position in self._positions.view().positions.items():
            found.setdefault(key.target, (key, position))
        return found

    def position(self, key: PartitionKey) -> Position | None:
        return self._newest(Position, key)

    def verified(self, key: PartitionKey) -> Verified | None:
        return self._newest(Verified, key)

    def _newest(self, kind: type[E], key: PartitionKey) -> E | None:
        partition, record_key = key.ledger_partition, key.entry(kind.KIND)
        entries = NewestEntries(self._replication)
        if (record := self.journal.newest(POSITIONS, partition, key_text(record_key))) is not None:
            _add(entries, record)
        newest = entries.get(partition, record_key)
        entry = newest.entry() if newest else None
        assert entry is None or isinstance(entry, kind)
        return entry

    def receipts(self, wanted: Mapping[PartitionKey, int | None]) -> Receipts:
        head, entries = self._shelf.head(), NewestEntries(self._replication)
        ends = _ends(head)
        since = offsets_to_read(wanted, ends)
        if wanted and head.at is not None:
            for record in self.journal.since(head, min(since.values()), [RECEIPTS]):
                _add(entries, record)
            entries.log_foreign(RECEIPTS)
        partitions = {key.ledger_partition for key in wanted}
        begin = head.receipts_from
        return entries.receipts(since, {number: OffsetRange(begin, ends[number]) for number in partitions})

    def receipt_ends(self) -> Mapping[int, int]:
        return _ends(self._shelf.head())

    def obstacle(self) -> ReplicationError | None:
        return self._shelf.obstacle()

    def expire(self, may_go: Callable[[PartitionKey, Receipt], bool]) -> int:
        """Once a day, because it reads all stored receipts. The head is written first, with the offset below which
        receipts may be gone.
        """
        head, deleted = self._shelf.head(), 0
        if head.at is None or head.expired > now(EXPIRE_SECONDS):
            return 0
        self.journal.change(lambda newest: replace(newest, expired=now()))
        stored = self._shelf.stored_since(self._replication, 0, [RECEIPTS])
        old = (record for record in stored if record.offset < head.applied and _may_go(record, may_go))
        while some := list(itertools.islice(old, AT_ONCE)):
            until = max(record.offset for record in some) + 1
            self.journal.change(partial(_without_receipts, until=until))
            self._shelf.remove(some)
            deleted += len(some)
        return deleted


def _without_receipts(head: Head, until: int) -> Head:
    return replace(head, receipts_from=max(head.receipts_from, until))


def _may_go(record: LedgerRecord, may_go: Callable[[PartitionKey, Receipt], bool]) -> bool:
    """False also for what is no receipt that this version can read."""
    if record.value is None:
        return False
    try:
        _, key, _ = decode_key(record.key.encode())
        return may_go(key, codec.decode(Receipt, record.value.encode()))
    except LedgerUnreadable:
        return False


def _ends(head: Head) -> dict[int, int]:
    """Entries of all ledger partitions are numbered together."""
    return dict.fromkeys(range(LEDGER_PARTITIONS), head.next_offset)


def _add(entries: NewestEntries, record: LedgerRecord) -> None:
    value = None if record.value is None else record.value.encode()
    entries.add(record.topic, record.partition, record.offset, record.key.encode(), value)


class EntryWriter:
    """A `TransactionPort`: what is sent is kept until the commit, which is one conditional write."""

    def __init__(self, journal: Journal, writer_id: str, what: str, check: Callable[[str, int], None]) -> None:
        """``check`` raises the error about a topic that lacks this partition."""
        self._journal, self._what, self._check = journal, what, check
        self._writer = str(xxhash.xxh3_64_hexdigest(writer_id.encode()))  # its short name in the head
        self.session: int | None = None  # the number of this session; higher than that of every earlier one
        self.epoch = 0  # that of the head when this session began
        self.open = False
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
        self.open, self._entries = True, []

    def send(self, topic: str, partition: int, key: bytes, value: bytes | None) -> None:
        self._check(topic, partition)
        self._entries.append((topic, partition, key_text(key), None if value is None else value.decode()))

    def flush(self) -> None: ...

    def commit(self) -> None:
        assert self.session is not None, "not fenced"
        self._journal.change(self._with_entries)
        self.close()

    def _with_entries(self, head: Head) -> Head:
        if head.sessions.get(self._writer) != self.session:
            raise Fenced(f"{self._what}: a newer session took over", "run again when the other run has ended")
        after = head.with_(self._entries)
        failpoints.reached("P2", self._what)
        return after

    def close(self) -> None:
        self.open, self._entries = False, []
