"""The state of one replication according to the ledger, as one value.

Keeps the newest entry under each key of one replication, while the ledger is read in the order of its writing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from operator import itemgetter
from typing import Any, TypeVar

from kafka_replication.ledger import codec
from kafka_replication.ledger.account import NONE, Account
from kafka_replication.ledger.codec import decode_key, parts_of
from kafka_replication.ledger.entries import (
    Deleted,
    Entry,
    Gap,
    Handled,
    Ids,
    Position,
    Receipt,
    Removed,
    Start,
    Verified,
)
from kafka_replication.ledger.receipts import Receipts, StoredReceipt
from kafka_replication.ledger.values import LedgerEntry
from kafka_replication.model.choices import KEEP
from kafka_replication.model.errors import LedgerUnreadable
from kafka_replication.model.offsets import Coverage, OffsetRange, PartitionKey
from kafka_replication.runtime.events import Event, log_event

log = logging.getLogger(__name__)


def weakest(levels: Iterable[str]) -> str:
    """The weakest of these levels, without those of partitions of which nothing was verified; `NONE` if none was."""
    found = set(levels)
    return next((level for level in ("count", "digest") if level in found), NONE)


@dataclass(frozen=True, slots=True, order=True)
class Owner:
    """Another replication that copies to a target topic, and the id that the topic had when it was opened."""

    replication: str
    topic_id: str


@dataclass(frozen=True, slots=True)
class LedgerView:
    """The positions, verified coverage and approved gaps of one replication, and what its runs noted."""

    positions: Mapping[PartitionKey, Position] = field(default_factory=dict)
    verified: Mapping[PartitionKey, Verified] = field(default_factory=dict)
    gaps: Mapping[PartitionKey, tuple[Gap, ...]] = field(default_factory=dict)  # of every generation, in order
    _: KW_ONLY
    starts: Mapping[PartitionKey, Start] = field(default_factory=dict)  # of the first opening, where it failed
    deleted: Mapping[PartitionKey, Deleted] = field(default_factory=dict)  # reported deletions of source topics
    removed: Mapping[PartitionKey, Removed] = field(default_factory=dict)  # copies that the target no longer has
    handled: Mapping[PartitionKey, tuple[Handled, ...]] = field(default_factory=dict)  # of every generation
    # other replications, by target topic
    owners: Mapping[str, tuple[Owner, ...]] = field(default_factory=dict, compare=False)
    _accounts: dict[PartitionKey, Account] = field(init=False, repr=False, compare=False, default_factory=dict)

    @property
    def begun(self) -> bool:
        """True if the replication's first opening was done. What appears later starts at its beginning."""
        return bool(self.positions or self.starts)

    @property
    def is_sealed(self) -> bool:
        """True if all its positions are sealed."""
        return bool(self.positions) and all(position.sealed for position in self.positions.values())

    @property
    def cut(self) -> str | None:
        """The time from which on nobody had written to the source, if all its positions were sealed knowing that."""
        cuts = [position.sealed.cut if position.sealed else None for position in self.positions.values()]
        return max((cut for cut in cuts if cut), default=None) if all(cuts) else None

    def position(self, key: PartitionKey, generation: int) -> Position | None:
        """The position if it is of this generation, else None: another generation has other records."""
        position = self.positions.get(key)
        return position if position is not None and position.generation == generation else None

    def __getitem__(self, key: PartitionKey) -> Account:
        """The account of a known partition. It is asked for many times, and made once."""
        if (made := self._accounts.get(key)) is None:
            made = self._accounts[key] = self.of(key, self.positions[key].generation)
        return made

    def of(self, key: PartitionKey, generation: int) -> Account:
        """All entries of the partition that are of this generation."""
        verified, removed = self.verified.get(key), self.removed.get(key)
        return Account(
            key=key,
            position=self.position(key, generation)
            or Position(generation=generation, ids=Ids("", "", ""), start=0, next_offset=0),
            verified=verified if verified and verified.generation == generation else Verified(generation=generation),
            removed=removed if removed and removed.generation == generation else Removed(generation=generation),
            gaps=tuple(gap for gap in self.gaps.get(key, ()) if gap.generation == generation),
            handled=tuple(entry for entry in self.handled.get(key, ()) if entry.generation == generation),
        )


def copied_until(position: Position) -> int:
    """The next source offset to copy. It is below ``next_offset`` if the target lost the copies before that."""
    next_ = position.next_offset
    holes = position.left_of(OffsetRange(min(position.start, next_), next_))
    return holes[-1].from_ if holes and holes[-1].until == next_ else next_


def lost_before(position: Position, wanted: OffsetRange, known: Coverage) -> Coverage:
    """The offsets that the target lost and that a copy of ``wanted`` would leave behind newer ones. ``known``: it was
    planned to do so.
    """
    if wanted.until <= position.next_offset:
        return Coverage()
    lost = OffsetRange(copied_until(position), position.next_offset)
    return Coverage.of([lost]).subtract(known).subtract(Coverage.of([wanted]))


def partitioning_of(key: PartitionKey, position: Position) -> str | None:
    """The partitioning of the last records before this position; None if nothing was written yet."""
    if not position.coverage or not any(position.ends(key.source.partition).values()):
        return None
    return position.spread.by.name if position.spread else KEEP


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
            owners=Owners(self._others),
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
