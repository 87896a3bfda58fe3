"""Keeps the newest entry under each key of one replication while a ledger topic is read in log order."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from confluent_kafka import Message

from kafka_replication.kafka.scan import offset_of
from kafka_replication.ledger import codec
from kafka_replication.ledger.entries import Entry
from kafka_replication.ledger.record_keys import decode_key
from kafka_replication.model.errors import LedgerUnreadable
from kafka_replication.model.keys import PartitionKey
from kafka_replication.runtime.events import Event, log_event

log = logging.getLogger(__name__)

_DECODERS: dict[str, Callable[[bytes], Entry]] = {
    "position": codec.decode_position,
    "verified": codec.decode_verified,
    "gap": codec.decode_gap,
    "start": codec.decode_start,
    "deleted": codec.decode_deleted,
    "removed": codec.decode_removed,
    "receipt": codec.decode_receipt,
}


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
            decode = _DECODERS.get(self.kind)
            if decode is None:
                raise LedgerUnreadable(
                    f"{where}: the entry {self.record_key!r} is of an unknown kind", "upgrade this installation"
                )
            try:
                self._entry = decode(self.value)
            except LedgerUnreadable as e:
                raise LedgerUnreadable(
                    f"{where}, key {self.record_key.decode(errors='replace')}: {e.what}", e.remedy
                ) from e
        return self._entry


class NewestEntries:
    """Takes the records of one ledger topic in log order. Keeps those of one replication and drops the others at once.

    A record without a value deletes the entry under its key.
    """

    def __init__(self, replication: str) -> None:
        self._replication = replication
        self._by_key: dict[tuple[int, bytes], NewestEntry] = {}
        self._foreign: dict[tuple[int, bytes], tuple[int, Event, str]] = {}  # the offset, and the message to log
        self._logged: set[tuple[int, bytes, int]] = set()

    def copy(self) -> NewestEntries:
        """A second object with the same entries, for another reader."""
        twin = NewestEntries(self._replication)
        twin._by_key, twin._foreign, twin._logged = dict(self._by_key), dict(self._foreign), set(self._logged)
        return twin

    def __iter__(self) -> Iterator[NewestEntry]:
        return iter(self._by_key.values())

    def get(self, partition: int, record_key: bytes) -> NewestEntry | None:
        return self._by_key.get((partition, record_key))

    def forget(self, partition: int) -> None:
        """Drop the entries of this partition, because its log was replaced."""
        self._by_key = {place: entry for place, entry in self._by_key.items() if place[0] != partition}
        self._foreign = {place: why for place, why in self._foreign.items() if place[0] != partition}

    def add(self, message: Message) -> None:
        place = (message.partition() or 0, message.key() or b"")
        value = message.value()
        if value is None:  # a deletion, which is also the remedy for a foreign entry
            self._by_key.pop(place, None)
            self._foreign.pop(place, None)
        elif (known := self._by_key.get(place)) is not None:
            self._by_key[place] = NewestEntry(
                at=known.at,
                offset=offset_of(message),
                record_key=known.record_key,
                value=value,
                kind=known.kind,
                key=known.key,
            )
        elif self._is_other(place[1]):
            return
        else:
            self._add_new(place, message, value)

    def _is_other(self, record_key: bytes) -> bool:
        """Whether this is a well-formed key of another replication. Most keys are, so the check is cheap."""
        try:
            kind, replication, topic, partition, target, *more = json.loads(record_key)
        except (ValueError, TypeError):
            return False
        well_formed = type(partition) is int and all(type(text) is str for text in (kind, replication, topic, target))
        return well_formed and all(type(number) is int for number in more) and replication != self._replication

    def _add_new(self, place: tuple[int, bytes], message: Message, value: bytes) -> None:
        partition, record_key = place
        try:
            kind, key, _ = decode_key(record_key)
        except LedgerUnreadable as e:
            why = f"{e.what}; it is ignored. Remedy: {e.remedy}"
            self._foreign[place] = (offset_of(message), Event.FOREIGN_LEDGER_ENTRY, why)
            return
        if key.replication != self._replication:
            return
        if partition != key.ledger_partition:
            why = f"an entry of {key} does not belong in this partition; it is ignored"
            self._foreign[place] = (offset_of(message), Event.MISPLACED_LEDGER_ENTRY, why)
            return
        self._by_key[place] = NewestEntry(
            at=f"{message.topic()}-{partition}",
            offset=offset_of(message),
            record_key=record_key,
            value=value,
            kind=kind,
            key=key,
        )

    def log_foreign(self, topic: str) -> None:
        """Log each entry with a malformed key or in a wrong partition once: it is harmless, but a mistake."""
        for (partition, record_key), (offset, event, why) in self._foreign.items():
            if (partition, record_key, offset) not in self._logged:
                self._logged.add((partition, record_key, offset))
                text = "%s-%d on the target, offset %d: %s"
                log_event(log, logging.WARNING, event, text, topic, partition, offset, why)
