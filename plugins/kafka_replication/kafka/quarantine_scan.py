"""Finds the records of one partition in the quarantine topic, where the ledger's receipts of them have expired."""

from __future__ import annotations

from collections.abc import Iterator

import xxhash
from confluent_kafka import Message
from confluent_kafka.admin import AdminClient

from kafka_replication.kafka import clients, offsets, quarantine, topics
from kafka_replication.kafka.cursor import Cursor
from kafka_replication.kafka.scan import headers_of, offset_of
from kafka_replication.kafka.target_limits import size_of
from kafka_replication.ledger.entries import FailedRecord, Place
from kafka_replication.model.failures import FailureKind
from kafka_replication.model.keys import PartitionKey, consumer_group
from kafka_replication.model.offsets import OffsetRange, TopicPartition


def quarantined_records(
    config: clients.ClientConfig, admin: AdminClient, topic: str, key: PartitionKey, generation: int, stall: float
) -> Iterator[tuple[FailedRecord, str]]:
    """The records of this key and generation, and when they were quarantined. Nothing if there is no topic."""
    state = topics.states(admin, [topic]).get(topic)
    for number in sorted(state.partitions) if state else ():
        at = TopicPartition(topic, number)
        range_ = OffsetRange(offsets.log_starts(admin, [at])[at], offsets.last_stable(admin, [at])[at])
        cursor = Cursor(config, consumer_group(key.replication), at, stall)
        try:
            for message in cursor.read(range_):
                ours = quarantine.ours_of(headers_of(message))
                if _is_of(ours, key, generation):
                    yield _record(message, ours, at), ours["time"]
        finally:
            cursor.close()


def _is_of(ours: dict[str, str], key: PartitionKey, generation: int) -> bool:
    wanted = (key.source.topic, str(key.source.partition), key.target_topic, str(generation))
    return tuple(ours.get(name) for name in ("topic", "partition", "target", "generation")) == wanted


def _record(message: Message, ours: dict[str, str], at: TopicPartition) -> FailedRecord:
    key = message.key()
    original = quarantine.original(key, message.value(), headers_of(message))
    return FailedRecord(
        offset=int(ours["offset"]),
        kind=ours["kind"],
        reason=ours["reason"],
        error=ours["error"],
        size=-1 if original is None or ours["kind"] == FailureKind.UNREADABLE else size_of(original),
        key_digest="" if key is None else xxhash.xxh3_128_hexdigest(key),
        digest=quarantine.digest_of(original) if original else "",
        place=Place(at.topic, at.partition, offset_of(message)),
    )
