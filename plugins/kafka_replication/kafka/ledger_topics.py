"""The ledger's two topics on the target: creating them as they must be, reading them without ever being stale."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from confluent_kafka import KafkaException, Message
from confluent_kafka.admin import AdminClient

from kafka_replication import ledger
from kafka_replication.errors import LedgerUnreadable, Refused, Unreachable
from kafka_replication.kafka import clients, offsets, topics
from kafka_replication.kafka.scan import records
from kafka_replication.keys import LEDGER_PARTITIONS, PartitionKey
from kafka_replication.ledger import POSITIONS, RECEIPTS, Position, Receipt, Verified
from kafka_replication.offsets import OffsetRange, TopicPartition
from kafka_replication.snapshot import LedgerView

_SETTINGS = {"cleanup.policy": "compact", "unclean.leader.election.enable": "false"}
_ALL = range(LEDGER_PARTITIONS)


def ensure(admin: AdminClient, *, create: bool = True) -> bool:
    """Create both topics where missing and check them. False where one is missing and ``create`` is not set.

    Raises Refused for a ledger topic that is not exactly as it must be: with another cleanup policy entries would vanish,
    with another partition count they would be looked for in the wrong place.
    """
    found = topics.describe(admin, [POSITIONS, RECEIPTS])
    if not create and len(found) < 2:
        return False
    for name in sorted({POSITIONS, RECEIPTS} - found.keys()):
        topics.create(admin, name, LEDGER_PARTITIONS, None, {**_SETTINGS, "max.message.bytes": "4194304"})
        found |= topics.describe(admin, [name])
    for name, topic in found.items():
        wrong = [f"{key}={topic.config.get(key)}, not {value}" for key, value in _SETTINGS.items() if topic.config.get(key) != value]
        if len(topic.partitions) != LEDGER_PARTITIONS:
            wrong.append(f"{len(topic.partitions)} partitions, not {LEDGER_PARTITIONS}")
        if wrong:
            raise Refused(f"the ledger topic {name} on the target has {'; '.join(wrong)}", "set it back, or restore the topic")
    return True


class LedgerReader:
    """Reads what is committed now: waits until no open transaction can hide an entry, then reads up to that point."""

    def __init__(self, config: clients.ClientConfig, admin: AdminClient, replication: str) -> None:
        self._config, self._admin, self._replication = config, admin, replication

    def _entries(self, topic: str, partitions: Collection[int]) -> Iterator[Message]:
        wanted = [TopicPartition(topic, number) for number in sorted(partitions)]
        starts, ends = offsets.log_starts(self._admin, wanted), offsets.stable_ends(self._admin, wanted)
        # An end-of-partition event answers an empty fetch: waiting 100 ms for each of 16 partitions adds up.
        reader = clients.consumer(self._config, f"kafka-replication.{self._replication}", **{"fetch.wait.max.ms": 5})
        try:
            for at in wanted:
                yield from records(reader, at, OffsetRange(min(starts[at], ends[at]), ends[at]))
        finally:
            reader.close()

    def undecided(self) -> set[PartitionKey]:
        """Keys of this replication with an entry in an open transaction: what a dead run left behind, or a live one is about to commit."""
        wanted = [TopicPartition(POSITIONS, number) for number in _ALL]
        stable, ends = offsets.last_stable(self._admin, wanted), offsets.high_watermarks(self._admin, wanted)
        reader = clients.uncommitted_consumer(self._config, f"kafka-replication.{self._replication}")
        try:
            found = {m.key() for at in wanted for m in records(reader, at, OffsetRange(min(stable[at], ends[at]), ends[at])) if m.value()}
        finally:
            reader.close()
        keys = {key for kind, key, _ in map(ledger.decode_key, found) if kind == "position"}
        return {key for key in keys if key.replication == self._replication}

    def position(self, key: PartitionKey) -> Position | None:
        """The newest position of ``key``; None where the partition was never opened. Raises LedgerUnreadable, Stalled."""
        wanted, newest = ledger.position_key(key), None
        for message in self._entries(POSITIONS, [key.ledger_partition]):
            if message.key() == wanted:
                newest = message.value()
        return None if newest is None else ledger.decode_position(newest)

    def view(self) -> LedgerView:
        """Every position and verified coverage of this replication."""
        newest: dict[bytes, bytes | None] = {}
        for message in self._entries(POSITIONS, _ALL):
            newest[message.key() or b""] = message.value()
        positions, verified = {}, {}
        for data, value in newest.items():
            if value is None:  # deleted, as the remedy for a foreign entry says, whatever its key was
                continue
            kind, key, _ = ledger.decode_key(data)
            if key.replication != self._replication:
                continue
            if kind == "position":
                positions[key] = ledger.decode_position(value)
            elif kind == "verified":
                verified[key] = ledger.decode_verified(value)
            else:
                raise LedgerUnreadable(f"a ledger entry is of the unknown kind {kind!r}", "upgrade this installation")
        return LedgerView(positions, verified)

    def receipts(self, keys: Collection[PartitionKey]) -> dict[PartitionKey, list[Receipt]]:
        """All receipts of ``keys``, every generation."""
        newest: dict[bytes, bytes | None] = {}
        for message in self._entries(RECEIPTS, {key.ledger_partition for key in keys}):
            newest[message.key() or b""] = message.value()
        found: dict[PartitionKey, list[Receipt]] = {key: [] for key in keys}
        for data, value in newest.items():
            if value is None:
                continue
            _, key, _ = ledger.decode_key(data)
            if key in found:
                found[key].append(ledger.decode_receipt(value))
        return found


def write_verified(config: clients.ClientConfig, entries: dict[PartitionKey, Verified], timeout: float = 60.0) -> None:
    """Store verified coverage, without a transaction. Raises Unreachable unless every entry is acknowledged."""
    if not entries:
        return
    errors: list[Exception] = []
    producer = clients.producer(config)

    def delivered(error: Any, _: Message) -> None:
        if error is not None:
            errors.append(clients.translate(error, "writing verified coverage to the ledger"))

    for key, entry in entries.items():
        producer.produce(
            POSITIONS, key=ledger.verified_key(key), value=ledger.encode(entry), partition=key.ledger_partition, on_delivery=delivered
        )
    try:
        left = producer.flush(timeout)
    except KafkaException as e:
        raise clients.translate(e.args[0], "writing verified coverage to the ledger") from e
    if errors:
        raise errors[0]
    if left:
        raise Unreachable(f"the ledger did not acknowledge verified coverage within {timeout:.0f} s", "run again")
