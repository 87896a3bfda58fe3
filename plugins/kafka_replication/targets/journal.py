"""The ledger of a target without transactions that can replace a value only if nobody else has replaced it.

For each replication there is one such value, the head. It has what has to change together: the newest session of each
writer, and the last transactions as a whole. So a commit is one conditional write, and reading the head shows what was
acknowledged. Before the tail grows long its entries are stored one by one, each with its number: storing one again, or
late, changes nothing.
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Final

from kafka_replication.ledger.entries import Position
from kafka_replication.model.errors import LedgerUnreadable, NotReady, ReplicationError
from kafka_replication.model.offsets import PartitionKey, TopicPartition

FORMAT: Final = 1
LEDGER_PLACE: Final = "kafka-replication.ledger"  # the index, table or folder that has the ledgers
MOST_IN_TAIL = 100  # entries
MOST_BYTES_IN_TAIL = 500_000
MOST_SESSIONS = 4096  # writers whose newest session the head remembers; one that it forgot counts as fenced
EXPIRE_SECONDS = 86_400
AT_ONCE = 1_000  # receipts that are deleted with one request
CONFLICTS = 100  # commits of others that one commit may meet in a row
SHORTEST_PAUSE, LONGEST_PAUSE = 0.005, 0.5  # seconds after such a commit, at most; it doubles
Writer = tuple[PartitionKey, Position]
Writers = Mapping[TopicPartition, Writer]


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """One entry as it is stored. ``value`` None deletes what the key has. Its offset is its number in the ledger of one
    replication, in the order of commits.
    """

    offset: int
    topic: str
    partition: int
    key: str
    _: KW_ONLY
    value: str | None

    @classmethod
    def of_json(cls, stored: Sequence[Any]) -> LedgerRecord:
        offset, topic, partition, key, value = stored
        return cls(offset, topic, partition, key, value=value)

    def as_json(self) -> list[Any]:
        return [self.offset, self.topic, self.partition, self.key, self.value]

    @property
    def place(self) -> tuple[str, int, str]:
        return self.topic, self.partition, self.key

    @property
    def size(self) -> int:
        return len(self.key) + len(self.value or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """``sessions`` has the newest session of each writer that has not left, ``session`` the number that was given last.
    Receipts below ``receipts_from`` may have been deleted for their age, when it was ``expired``.

    ``epoch`` grows when a session replaces one that may still write: it is that of all sessions from ``epoch_from`` on.
    So it orders who may write the same record, and stays small: it grows with crashes, not with runs.
    """

    replication: str
    next_offset: int = 0
    session: int = 0
    sessions: dict[str, int] = field(default_factory=dict)
    tail: tuple[LedgerRecord, ...] = ()
    receipts_from: int = 0
    epoch: int = 1
    epoch_from: int = 0
    expired: str = ""  # the time when old receipts were looked for last; empty: never
    at: Any = None  # tells the target which head is to be replaced; None: there is none yet

    @property
    def applied(self) -> int:
        """All entries below this offset are documents of their own."""
        return self.tail[0].offset if self.tail else self.next_offset

    def fenced_by(self, writer: str, *, copies: bool = False) -> Head:
        """After ``writer`` began a new session, which ends all earlier ones of the same id. ``copies``: it is one that
        writes records.
        """
        number = self.session + 1
        sessions = {**self.sessions, writer: number}
        not_left = [self.sessions[writer]] if copies and writer in self.sessions else []
        if len(sessions) > MOST_SESSIONS:
            not_left.append(sessions.pop(min(sessions, key=lambda name: sessions[name])))
        after = replace(self, session=number, sessions=sessions)
        if max(not_left, default=-1) < self.epoch_from:
            return after  # the epoch has grown since
        return replace(after, epoch=self.epoch + 1, epoch_from=number)

    def left_by(self, writer: str, session: int) -> Head:
        """After this session ended, which will write nothing more."""
        if self.sessions.get(writer) != session:
            return self
        return replace(self, sessions={name: number for name, number in self.sessions.items() if name != writer})

    def with_(self, entries: Iterable[tuple[str, int, str, str | None]]) -> Head:
        """After these entries were committed together."""
        new = tuple(LedgerRecord.of_json((self.next_offset + number, *entry)) for number, entry in enumerate(entries))
        return replace(self, next_offset=self.next_offset + len(new), tail=(*self.tail, *new))

    def as_json(self) -> dict[str, Any]:
        expired = {"expired": self.expired, "receipts_from": self.receipts_from} if self.expired else {}
        epoch = {"epoch": self.epoch, "epoch_from": self.epoch_from} if self.epoch_from else {}
        return {
            "kind": "head",
            "format": FORMAT,
            "replication": self.replication,
            "next": self.next_offset,
            "session": self.session,
            "sessions": self.sessions,
            "tail": [record.as_json() for record in self.tail],
            **epoch,
            **expired,
        }

    @classmethod
    def of(cls, source: dict[str, Any], at: Any = None) -> Head:
        """Raises LedgerUnreadable, which shows nothing of what is there."""
        what, remedy = "the head of a ledger on the target cannot be read", "upgrade, or find who changed it"
        try:
            if source["format"] != FORMAT:
                raise LedgerUnreadable(f"{what}: its format is {source['format']!r:.9}", remedy)
            return cls(
                replication=str(source["replication"]),
                next_offset=int(source["next"]),
                session=int(source["session"]),
                sessions=dict(source["sessions"]),
                tail=tuple(map(LedgerRecord.of_json, source["tail"])),
                epoch=int(source.get("epoch", 1)),
                epoch_from=int(source.get("epoch_from", 0)),
                receipts_from=int(source.get("receipts_from", 0)),
                expired=str(source.get("expired", "")),
                at=at,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise LedgerUnreadable(f"{what}: {type(error).__name__}", remedy) from None


def key_text(key: bytes) -> str:
    """A key as text, whatever its bytes."""
    return key.decode("utf-8", "backslashreplace")


class JournalStorage(ABC):
    """The place of the ledger of one replication on a target: its head, and the entries that the head has no more."""

    replication: str

    @abstractmethod
    def ledger_exists(self) -> bool:
        """True if there is a place for ledgers. Raises Refused if it is of another version."""

    @abstractmethod
    def create_ledger(self) -> None:
        """Make the place for ledgers, unless it exists."""

    @abstractmethod
    def head(self) -> Head:
        """As of now, whatever was acknowledged. An empty one if there is none."""

    @abstractmethod
    def heads(self) -> list[Head]:
        """The heads of all replications."""

    @abstractmethod
    def replace(self, before: Head, after: Head) -> bool:
        """Replace ``before`` unless it was replaced; False if so. Raises Refused if there is no ledger. After
        Unreachable the outcome is unknown.
        """

    @abstractmethod
    def store(self, records: Sequence[LedgerRecord]) -> None:
        """Store entries, one for each place. One that has a newer entry keeps it."""

    @abstractmethod
    def remove(self, records: Sequence[LedgerRecord]) -> None:
        """Remove stored entries. A newer one of the same place stays."""

    @abstractmethod
    def stored(self, place: tuple[str, int, str]) -> LedgerRecord | None:
        """The stored entry of this place."""

    @abstractmethod
    def stored_since(self, replication: str, offset: int, topics: Iterable[str]) -> Iterator[LedgerRecord]:
        """The stored entries of a replication with this offset or a higher one."""

    def obstacle(self) -> ReplicationError | None:
        """As that of `Ledger`."""
        return None


class Journal:
    """The ledger of one replication, on its shelf."""

    def __init__(self, shelf: JournalStorage) -> None:
        self.shelf, self.replication = shelf, shelf.replication

    def change(self, changed: Callable[[Head], Head]) -> Head:
        """Replace the head by what ``changed`` makes of the newest one, again after each commit of somebody else.

        Raises Refused if there is no ledger. After Unreachable the outcome is unknown.
        """
        for conflicts in range(CONFLICTS):
            if conflicts:  # writers that wait for different times do not meet again
                time.sleep(random.uniform(0, min(LONGEST_PAUSE, SHORTEST_PAUSE * 2**conflicts)))
            before = self.shelf.head()
            if (after := changed(before)) is before:
                return before
            size = sum(record.size for record in after.tail)
            if before.tail and (len(after.tail) > MOST_IN_TAIL or size > MOST_BYTES_IN_TAIL):
                newest = {record.place: record for record in before.tail}
                self.shelf.store(list(newest.values()))
                after = replace(after, tail=after.tail[len(before.tail) :])
            if self.shelf.replace(before, after):
                return after
        raise NotReady(
            f"the ledger of {self.replication} on the target changes faster than it can be written", "run again"
        )

    def newest(self, topic: str, partition: int, key: str) -> LedgerRecord | None:
        """The newest entry of this key."""
        head = self.shelf.head()
        for record in reversed(head.tail):
            if record.place == (topic, partition, key):
                return record
        return self.shelf.stored((topic, partition, key))

    def since(self, head: Head, offset: int, topics: Iterable[str]) -> Iterator[LedgerRecord]:
        """The newest entries with this offset or a higher one, those of one key in their order. Read ``head`` first:
        what is stored later is in its tail, too, or newer than it.
        """
        wanted, newer = set(topics), dict[tuple[str, int, str], int]()
        if offset < head.applied:
            for record in self.shelf.stored_since(head.replication, offset, wanted):
                if record.offset >= head.applied:
                    newer[record.place] = record.offset
                yield record
        for record in head.tail:
            if record.offset >= offset and record.topic in wanted and record.offset >= newer.get(record.place, 0):
                yield record
