"""The newest entry under each key of one replication, as a ledger topic is read in the order of its log."""

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
    "receipt": codec.decode_receipt,
}


@dataclass(slots=True)
class NewestEntry:
    """One entry where it lies. It is decoded when it is first asked for: an older, spoilt one stops nobody."""

    at: str  # the topic-partition
    offset: int
    record_key: bytes
    value: bytes
    kind: str
    key: PartitionKey
    _entry: Entry | None = None

    def entry(self) -> Entry:
        """Raises LedgerUnreadable, naming where the entry lies."""
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
    """Takes the records of one ledger topic in log order; keeps those of one replication and drops the others at once.

    A record without a value deletes what was under its key.
    """

    def __init__(self, replication: str) -> None:
        self._replication = replication
        self._by_key: dict[tuple[int, bytes], NewestEntry] = {}
        self._foreign: dict[tuple[int, bytes], tuple[int, Event, str]] = {}  # offset, what to log
        self._logged: set[tuple[int, bytes, int]] = set()

    def __iter__(self) -> Iterator[NewestEntry]:
        return iter(self._by_key.values())

    def get(self, partition: int, record_key: bytes) -> NewestEntry | None:
        return self._by_key.get((partition, record_key))

    def forget(self, partition: int) -> None:
        """Drop what was read of this partition: its log is another one now."""
        self._by_key = {place: entry for place, entry in self._by_key.items() if place[0] != partition}
        self._foreign = {place: why for place, why in self._foreign.items() if place[0] != partition}

    def add(self, message: Message) -> None:
        place = (message.partition() or 0, message.key() or b"")
        value = message.value()
        if value is None:  # deleted, as the remedy for a foreign entry says, whatever its key was
            self._by_key.pop(place, None)
            self._foreign.pop(place, None)
        elif (known := self._by_key.get(place)) is not None:
            self._by_key[place] = NewestEntry(
                known.at, offset_of(message), known.record_key, value, known.kind, known.key
            )
        elif self._is_other(place[1]):
            return
        else:
            self._add_new(place, message, value)

    def _is_other(self, record_key: bytes) -> bool:
        """Whether this is the well-formed key of another replication: by far the most frequent, so it costs little."""
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
            why = f"{e.what}; it is passed over. Remedy: {e.remedy}"
            self._foreign[place] = (offset_of(message), Event.FOREIGN_LEDGER_ENTRY, why)
            return
        if key.replication != self._replication:
            return
        if partition != key.ledger_partition:
            why = f"an entry of {key} does not belong into this partition; it is passed over"
            self._foreign[place] = (offset_of(message), Event.MISPLACED_LEDGER_ENTRY, why)
            return
        self._by_key[place] = NewestEntry(
            f"{message.topic()}-{partition}", offset_of(message), record_key, value, kind, key
        )

    def log_foreign(self, topic: str) -> None:
        """Name in the log, once, what lies under a key that is not ours: it does no harm, and should not be there."""
        for (partition, record_key), (offset, event, why) in self._foreign.items():
            if (partition, record_key, offset) not in self._logged:
                self._logged.add((partition, record_key, offset))
                text = "%s-%d on the target, offset %d: %s"
                log_event(log, logging.WARNING, event, text, topic, partition, offset, why)
