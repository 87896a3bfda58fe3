"""The ledger's two topics on the target: creating them as they must be, reading them without ever being stale."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TypeVar

from confluent_kafka import Message
from confluent_kafka.admin import AdminClient

from kafka_replication.kafka import clients, offsets, topics
from kafka_replication.kafka.cursor import records
from kafka_replication.ledger import codec, record_keys
from kafka_replication.ledger.entries import POSITIONS, RECEIPTS, Gap, Position, Receipt
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import LedgerUnreadable, Refused
from kafka_replication.model.keys import LEDGER_PARTITIONS, PartitionKey, consumer_group
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.runtime.deadline import NEVER, Deadline
from kafka_replication.runtime.events import Event, log_event

log = logging.getLogger(__name__)
T = TypeVar("T")
_SETTINGS = {"cleanup.policy": "compact", "unclean.leader.election.enable": "false"}
_ALL = range(LEDGER_PARTITIONS)
LONGEST_TRANSACTION = 960.0  # seconds: 15 minutes by the brokers' default maximum, plus a sweep


def ensure(admin: AdminClient, *, create: bool = True) -> bool:
    """Create both topics where missing and check them. False where one is missing and ``create`` is not set.

    Raises Refused for a ledger topic that is not exactly as it must be: with another cleanup policy entries would
    vanish, with another partition count they would be looked for in the wrong place. Receipts are created first:
    positions without them mean that they were deleted.
    """
    found = topics.describe(admin, [POSITIONS, RECEIPTS])
    if POSITIONS in found and RECEIPTS not in found:
        raise Refused(
            f"the ledger topic {RECEIPTS} is gone from the target, while {POSITIONS} is there: the audit trail was"
            " deleted",
            f"restore it; or create it empty (cleanup.policy=compact, {LEDGER_PARTITIONS} partitions): what was not"
            " verified then stays so",
        )
    if not create and len(found) < 2:
        return False
    for name in sorted({POSITIONS, RECEIPTS} - found.keys(), reverse=True):
        topics.create(admin, name, LEDGER_PARTITIONS, None, {**_SETTINGS, "max.message.bytes": "4194304"})
        found |= topics.describe(admin, [name])
    for name, topic in found.items():
        wrong = [
            f"{key}={topic.config.get(key)}, not {value}"
            for key, value in _SETTINGS.items()
            if topic.config.get(key) != value
        ]
        if len(topic.partitions) != LEDGER_PARTITIONS:
            wrong.append(f"{len(topic.partitions)} partitions, not {LEDGER_PARTITIONS}")
        if wrong:
            raise Refused(
                f"the ledger topic {name} on the target has {'; '.join(wrong)}", "set it back, or restore the topic"
            )
    return True


class LedgerReader:
    """Reads what is committed now: waits until no open transaction can hide an entry, then reads up to that point."""

    def __init__(
        self, config: clients.ClientConfig, admin: AdminClient, replication: str, deadline: Deadline = NEVER
    ) -> None:
        self._config, self._admin, self._replication, self._deadline = config, admin, replication, deadline

    def _entries(self, topic: str, partitions: Collection[int]) -> Iterator[Message]:
        wanted = [TopicPartition(topic, number) for number in sorted(partitions)]
        starts = offsets.log_starts(self._admin, wanted)
        ends = offsets.stable_ends(self._admin, wanted, self._deadline.within(LONGEST_TRANSACTION))
        # An end-of-partition event answers an empty fetch: waiting 100 ms for each of 16 partitions adds up.
        reader = clients.consumer(self._config, consumer_group(self._replication), **{"fetch.wait.max.ms": 5})
        try:
            for at in wanted:
                yield from records(reader, at, OffsetRange(min(starts[at], ends[at]), ends[at]))
        finally:
            reader.close()

    def undecided(self) -> set[PartitionKey]:
        """Keys of this replication with an entry in an open transaction: what a dead run left behind, or a live one is
        about to commit.
        """
        wanted = [TopicPartition(topic, number) for topic in (POSITIONS, RECEIPTS) for number in _ALL]
        stable, ends = offsets.last_stable(self._admin, wanted), offsets.high_watermarks(self._admin, wanted)
        hidden = [(at, OffsetRange(stable[at], ends[at])) for at in wanted if stable[at] < ends[at]]
        if not hidden:
            return set()
        reader = clients.uncommitted_consumer(self._config, consumer_group(self._replication))
        try:
            found = [message for at, range_ in hidden for message in records(reader, at, range_)]
        finally:
            reader.close()
        return {key for _, key, _ in self._newest_of(found)}

    def position(self, key: PartitionKey) -> Position | None:
        """The newest position of ``key``; None where the partition was never opened.

        Raises LedgerUnreadable, Stalled.
        """
        wanted, newest = record_keys.position_key(key), None
        for message in self._entries(POSITIONS, [key.ledger_partition]):
            if message.key() == wanted:
                newest = message
        return None if newest is None or newest.value() is None else _read(newest, codec.decode_position)

    def view(self) -> LedgerView:
        """Every position, verified coverage and approved gap of this replication. Raises LedgerUnreadable, Stalled."""
        positions, verified = {}, {}
        gaps: dict[PartitionKey, list[Gap]] = {}
        for kind, key, message in self._newest(POSITIONS, _ALL):
            if kind == "position":
                positions[key] = _read(message, codec.decode_position)
            elif kind == "verified":
                verified[key] = _read(message, codec.decode_verified)
            elif kind == "gap":
                gaps.setdefault(key, []).append(_read(message, codec.decode_gap))
            else:
                raise LedgerUnreadable(
                    f"{_at(message)}: the entry {message.key()!r} is of an unknown kind", "upgrade this installation"
                )
        in_order = {key: tuple(sorted(each, key=lambda gap: (gap.generation, gap.range))) for key, each in gaps.items()}
        return LedgerView(positions, verified, in_order)

    def receipts(self, keys: Collection[PartitionKey]) -> dict[PartitionKey, list[Receipt]]:
        """All receipts of ``keys``, every generation. Raises LedgerUnreadable, Stalled."""
        found: dict[PartitionKey, list[Receipt]] = {key: [] for key in keys}
        for _, key, message in self._newest(RECEIPTS, {key.ledger_partition for key in keys}):
            if key in found:
                found[key].append(_read(message, codec.decode_receipt))
        return found

    def _newest(self, topic: str, partitions: Collection[int]) -> Iterator[tuple[str, PartitionKey, Message]]:
        return self._newest_of(self._entries(topic, partitions))

    def _newest_of(self, entries: Iterable[Message]) -> Iterator[tuple[str, PartitionKey, Message]]:
        """The newest entry under each key of this replication.

        What lies under nobody's key is named in the log and does no harm.
        """
        newest = {(message.partition(), message.key()): message for message in entries}
        for message in newest.values():
            if message.value() is None:  # deleted, as the remedy for a foreign entry says, whatever its key was
                continue
            try:
                kind, key, _ = record_keys.decode_key(message.key())
            except LedgerUnreadable as e:
                text = "%s: %s; it is passed over. Remedy: %s"
                log_event(log, logging.WARNING, Event.FOREIGN_LEDGER_ENTRY, text, _at(message), e.what, e.remedy)
                continue
            if key.replication == self._replication:
                if message.partition() == key.ledger_partition:
                    yield kind, key, message
                else:
                    text = "%s: an entry of %s does not belong into this partition; it is passed over"
                    log_event(log, logging.WARNING, Event.MISPLACED_LEDGER_ENTRY, text, _at(message), key)


def _at(message: Message) -> str:
    return f"{message.topic()}-{message.partition()} on the target, offset {message.offset()}"


def _read(message: Message, decode: Callable[[bytes], T]) -> T:
    """The entry. Raises LedgerUnreadable naming where it lies."""
    try:
        return decode(message.value() or b"")
    except LedgerUnreadable as e:
        raise LedgerUnreadable(
            f"{_at(message)}, key {(message.key() or b'').decode(errors='replace')}: {e.what}", e.remedy
        ) from e
