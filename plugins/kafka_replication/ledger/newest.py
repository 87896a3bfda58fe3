"""Keeps the newest entry under each key of one replication, while the ledger is read in the order of its writing."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeVar

from kafka_replication.ledger import codec
from kafka_replication.ledger.entries import Deleted, Entry, Gap, Handled, Position, Receipt, Removed, Start, Verified
from kafka_replication.ledger.fields import LedgerEntry
from kafka_replication.ledger.receipts import Receipts, StoredReceipt
from kafka_replication.ledger.record_keys import decode_key, parts_of
from kafka_replication.ledger.view import LedgerView, Owner
from kafka_replication.model.errors import LedgerUnreadable
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.runtime.events import Event, log_event

log = logging.getLogger(__name__)
E = TypeVar("E", bound=LedgerEntry)


class Owners(Mapping[str, tuple[Owner, ...]]):
    """Other replications by target topic. Their positions are decoded when somebody asks for the topic: a ledger may
    have thousands. One that cannot be read is left out.
    """

    def __init__(self, values: Mapping[str, Mapping[tuple[int, bytes], bytes]]) -> None:
        self._values = values

    def __getitem__(self, topic: str) -> tuple[Owner, ...]:
        found = set[Owner]()
        for (_, record_key), value in self._values[topic].items():
            with suppress(LedgerUnreadable):
                _, key, _ = decode_key(record_key)
                found.add(Owner(key.replication, codec.decode(Position, value).ids.target_topic))
        return tuple(sorted(found))

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


@dataclass(slots=True, kw_only=True)
class NewestEntry:
    """One entry and its place. It is decoded on first use, so that a malformed entry that was replaced does no harm."""

    at: str  # the topic-partition
    offset: int
    record_key: bytes
    value: bytes
    kind: str
    key: PartitionKey
    _entry: Entry | None = None

    def entry(self) -> Entry:
        """The decoded entry. Raises LedgerUnreadable, naming the entry's place."""
        if self._entry is None:
            where = f"{self.at} on the target, offset {self.offset}"
            kind = codec.KINDS.get(self.kind)
            if kind is None:
                raise LedgerUnreadable(
                    f"{where}: the entry {self.record_key!r} is of an unknown kind", "upgrade this installation"
                )
            try:
                self._entry = codec.decode(kind, self.value)
            except LedgerUnreadable as e:
                raise LedgerUnreadable(
                    f"{where}, key {self.record_key.decode(errors='replace')}: {e.what}", e.remedy
                ) from e
        return self._entry


class NewestEntries:
    """Takes the records of one ledger topic in log order. Keeps those of one replication.

    Of other replications it keeps only the newest positions, unread: they say to whom a target topic belongs. A record
    without a value deletes the entry under its key.
    """

    def __init__(self, replication: str) -> None:
        self._replication = replication
        self._by_key: dict[tuple[int, bytes], NewestEntry] = {}
        self._others: dict[str, dict[tuple[int, bytes], bytes]] = {}  # others' positions, by target topic
        self._targets: dict[bytes, str] = {}  # by key of others: the target topic of a position, empty for other kinds
        self._foreign: dict[tuple[int, bytes], tuple[int, Event, str]] = {}  # the offset, and the message to log
        self._logged: set[tuple[int, bytes, int]] = set()

    def copy(self) -> NewestEntries:
        """A second object with the same entries, for another reader."""
        twin = NewestEntries(self._replication)
        twin._by_key, twin._foreign, twin._logged = dict(self._by_key), dict(self._foreign), set(self._logged)
        twin._others = {topic: dict(values) for topic, values in self._others.items()}
        return twin

    def __iter__(self) -> Iterator[NewestEntry]:
        """In the order of the partitions, which is not that of reading, and of each key's first record."""
        return (self._by_key[place] for place in sorted(self._by_key, key=itemgetter(0)))

    def get(self, partition: int, record_key: bytes) -> NewestEntry | None:
        return self._by_key.get((partition, record_key))

    def forget(self, partition: int) -> None:
        """Drop the entries of this partition, because its log was replaced."""
        self._by_key = {place: entry for place, entry in self._by_key.items() if place[0] != partition}
        self._foreign = {place: why for place, why in self._foreign.items() if place[0] != partition}
        for values in self._others.values():
            for place in [place for place in values if place[0] == partition]:
                del values[place]

    def owners(self) -> Mapping[str, tuple[Owner, ...]]:
        """The other replications with a position, by target topic."""
        return Owners(self._others)

    def add(self, topic: str, partition: int, offset: int, record_key: bytes, value: bytes | None) -> None:
        """Take the record at this offset. Without a value it deletes the entry under its key."""
        place = (partition, record_key)
        if value is None:  # a deletion, which is also the remedy for a foreign entry
            self._by_key.pop(place, None)
            self._foreign.pop(place, None)
            if target := self._of_other(record_key):
                self._others.get(target, {}).pop(place, None)
        elif (before := self._by_key.get(place)) is not None:
            self._by_key[place] = NewestEntry(
                at=before.at,
                offset=offset,
                record_key=before.record_key,
                value=value,
                kind=before.kind,
                key=before.key,
            )
        elif (target := self._of_other(record_key)) is None:
            self._add_new(topic, place, offset, value)
        elif target:
            self._others.setdefault(target, {})[place] = value

    def _of_other(self, record_key: bytes) -> str | None:
        """The target topic in a position's key of another replication, empty for its other entries; None for any other
        key. Most keys are of others, and each is there many times until it is compacted: it is decoded once.
        """
        target = self._targets.get(record_key)
        if target is None:
            try:
                kind, replication, _, _, own_target, *_ = parts_of(record_key)
            except LedgerUnreadable:
                return None
            if replication == self._replication:
                return None
            target = self._targets[record_key] = own_target if kind == "position" else ""
        return target

    def _add_new(self, topic: str, place: tuple[int, bytes], offset: int, value: bytes) -> None:
        partition, record_key = place
        try:
            kind, key, _ = decode_key(record_key)
        except LedgerUnreadable as e:
            why = f"{e.what}; it is ignored. Remedy: {e.remedy}"
            self._foreign[place] = (offset, Event.FOREIGN_LEDGER_ENTRY, why)
            return
        if key.replication != self._replication:
            return
        if partition != key.ledger_partition:
            why = f"an entry of {key} does not belong in this partition; it is ignored"
            self._foreign[place] = (offset, Event.MISPLACED_LEDGER_ENTRY, why)
            return
        self._by_key[place] = NewestEntry(
            at=f"{topic}-{partition}",
            offset=offset,
            record_key=record_key,
            value=value,
            kind=kind,
            key=key,
        )

    def view(self) -> LedgerView:
        """All entries but receipts. Raises LedgerUnreadable for one that cannot be read."""
        found: dict[type[LedgerEntry], dict[PartitionKey, list[Any]]] = {kind: {} for kind in codec.KINDS.values()}
        for newest in self:
            entry = newest.entry()
            found[type(entry)].setdefault(newest.key, []).append(entry)

        def one_each(kind: type[E]) -> dict[PartitionKey, E]:
            return {key: entries[-1] for key, entries in found[kind].items()}

        gaps, handled = found[Gap].items(), found[Handled].items()
        return LedgerView(
            one_each(Position),
            one_each(Verified),
            {key: tuple(sorted(some, key=lambda gap: (gap.generation, gap.range))) for key, some in gaps},
            starts=one_each(Start),
            deleted=one_each(Deleted),
            removed=one_each(Removed),
            handled={key: tuple(sorted(some, key=lambda entry: entry.time)) for key, some in handled},
            owners=self.owners(),
        )

    def receipts(self, since: Mapping[PartitionKey, int], bounds: Mapping[int, OffsetRange]) -> Receipts:
        """The receipts of these keys from these offsets on, of a log that has these ``bounds`` in each partition."""
        stored: dict[PartitionKey, list[StoredReceipt]] = {key: [] for key in since}
        for newest in self:
            if newest.key in stored and newest.offset >= since[newest.key]:
                receipt = newest.entry()
                assert isinstance(receipt, Receipt)
                stored[newest.key].append(StoredReceipt(newest.offset, receipt))
        return Receipts(
            stored={key: tuple(receipts) for key, receipts in stored.items()},
            since=since,
            log_starts={partition: there.from_ for partition, there in bounds.items()},
            ends={partition: there.until for partition, there in bounds.items()},
        )

    def log_foreign(self, topic: str) -> None:
        """Log each entry with a malformed key or in a wrong partition once: it is harmless, but a mistake."""
        for (partition, record_key), (offset, event, why) in self._foreign.items():
            if (partition, record_key, offset) not in self._logged:
                self._logged.add((partition, record_key, offset))
                text = "%s-%d on the target, offset %d: %s"
                log_event(log, logging.WARNING, event, text, topic, partition, offset, why)
