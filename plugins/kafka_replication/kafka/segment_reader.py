"""Reads target segments back with a new ``read_committed`` consumer, as any consumer sees them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafka_replication.kafka import clients, offsets, quarantine
from kafka_replication.kafka.cursor import Cursor
from kafka_replication.kafka.scan import headers_of, without_gc
from kafka_replication.ledger.entries import FailedRecord, Segment
from kafka_replication.model.errors import GapFound, Stalled, VerificationFailed
from kafka_replication.model.keys import PartitionKey, consumer_group
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.verification.digests import Digest
from kafka_replication.verification.verify import SegmentDigest


class SegmentReader:
    """A `TargetReader` that reads segment after segment with one consumer per partition."""

    def __init__(self, config: clients.ClientConfig, key: PartitionKey, stall: float, limit: int | None) -> None:
        self._config, self._key, self._stall, self._limit = config, key, stall, limit
        self._cursors: dict[TopicPartition, Cursor] = {}

    def read(self, segment: Segment, digest: Digest | None) -> SegmentDigest:
        at = TopicPartition(self._key.target_topic, segment.partition)
        count = 0
        try:
            with without_gc():
                for message in self._cursor(at).read(OffsetRange(segment.first, segment.last + 1)):
                    if digest is not None:
                        digest.add(message.timestamp()[1], message.key(), message.value(), headers_of(message))
                    count += 1
        except GapFound as e:
            raise self._removed(at, segment) from e
        except Stalled as e:
            stable = offsets.last_stable(clients.shared_admin(self._config), [at])[at]
            raise Stalled(
                f"{e.what}; the last stable offset of {at} is {stable}, waiting for {segment.last + 1}", e.remedy
            ) from e
        return SegmentDigest(count, "" if digest is None else digest.hexdigest())

    def quarantined(self, failed: FailedRecord) -> bool:
        assert failed.place is not None
        at = TopicPartition(failed.place.topic, failed.place.partition)
        try:
            found = self._cursor(at).read(OffsetRange(failed.place.offset, failed.place.offset + 1))
            return any(quarantine.is_copy_of(message, failed) for message in found)
        except GapFound:
            return False

    def _cursor(self, at: TopicPartition) -> Cursor:
        if at not in self._cursors:
            group = consumer_group(self._key.replication)
            self._cursors[at] = Cursor(self._config, group, at, self._stall, self._limit)
        return self._cursors[at]

    def _removed(self, at: TopicPartition, segment: Segment) -> VerificationFailed:
        start = offsets.log_starts(clients.shared_admin(self._config), [at])[at]
        return VerificationFailed(
            f"{self._key.source}: unverifiable: {at} on the target now starts at {start}; our records from"
            f" {segment.first} on were removed (retention or deletion) before they could be read back",
            "raise retention.ms on the target; then copy again what the source still has (kafka-replication backfill),"
            " or accept the unverified offsets with kafka-replication approve-gap",
        )

    def close(self) -> None:
        for cursor in self._cursors.values():
            cursor.close()


@contextmanager
def segment_reader(
    config: clients.ClientConfig, key: PartitionKey, stall: float, limit: int | None = None
) -> Iterator[SegmentReader]:
    """``limit`` is in bytes a second; None is no limit."""
    reader = SegmentReader(config, key, stall, limit)
    try:
        yield reader
    finally:
        reader.close()
