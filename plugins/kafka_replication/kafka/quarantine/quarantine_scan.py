"""Finds the records of one partition in the quarantine topic, where the ledger's receipts of them have expired."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from confluent_kafka.admin import AdminClient

from kafka_replication.kafka.client import clients
from kafka_replication.kafka.metadata import offsets, topics
from kafka_replication.kafka.quarantine import quarantine_record
from kafka_replication.kafka.read.cursor import Cursor
from kafka_replication.kafka.read.scan import headers_of, offset_of
from kafka_replication.ledger.entries import FailedRecord, Place
from kafka_replication.model.keys import PartitionKey, consumer_group
from kafka_replication.model.offsets import TopicPartition, readable
from kafka_replication.sinks.port import digest_of, size_of
from kafka_replication.verification.digest import key_digest


def quarantined_records(
    config: clients.ClientConfig, admin: AdminClient, topic: str, key: PartitionKey, generation: int, stall: float
) -> Iterator[tuple[FailedRecord, str]]:
    """The records of this key and generation, and when they were quarantined. Nothing if there is no topic.

    Raises Stalled if a transaction stays open for ``stall`` seconds: it hides what lies behind it.
    """
    state = topics.states(admin, [topic]).get(topic)
    partitions = [TopicPartition(topic, number) for number in sorted(state.partitions)] if state else []
    starts, ends = offsets.log_starts(admin, partitions), offsets.stable_ends(admin, partitions, stall)
    for at in partitions:
        with closing(Cursor(config, consumer_group(key.replication), at, stall)) as cursor:
            for message in cursor.read(readable(starts[at], ends[at])):
                headers, content_key = headers_of(message), message.key()
                ours = quarantine_record.ours_of(headers)
                if not quarantine_record.is_of(ours, key) or ours["generation"] != str(generation):
                    continue
                original = quarantine_record.original(content_key, message.value(), headers)
                failed = FailedRecord(
                    offset=int(ours["offset"]),
                    kind=ours["kind"],
                    reason=ours["reason"],
                    error=ours["error"],
                    size=-1 if original is None else size_of(original),
                    key_digest=key_digest(content_key),
                    digest=digest_of(original) if original else "",
                    place=Place(at.topic, at.partition, offset_of(message)),
                )
                yield failed, ours["time"]


class QuarantineEnds:
    """The ends of the partitions of quarantine topics, each asked for once: what was quarantined before lies below."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin, self._ends = admin, dict[TopicPartition, int]()

    def has(self, place: Place) -> bool:
        """True if the place can be read. Not if the topic was deleted, or created again and is shorter now: a reader
        would wait for it.
        """
        at = TopicPartition(place.topic, place.partition)
        if at not in self._ends:
            state = topics.states(self._admin, [at.topic]).get(at.topic)
            there = state is not None and at.partition in state.partitions
            self._ends[at] = offsets.high_watermarks(self._admin, [at])[at] if there else 0
        return place.offset < self._ends[at]
