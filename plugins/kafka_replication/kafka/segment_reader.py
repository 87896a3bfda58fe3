"""Read target segments back, afresh, as any ``read_committed`` consumer sees them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka.admin import AdminClient

from kafka_replication.kafka import clients, offsets
from kafka_replication.kafka.scan import headers_of, records, without_gc
from kafka_replication.ledger.entries import Segment
from kafka_replication.model.errors import Stalled, VerificationFailed
from kafka_replication.model.keys import PartitionKey, consumer_group
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.verification.digests import Digest
from kafka_replication.verification.verify import SegmentDigest


class SegmentReader:
    """A `TargetReader` over one consumer."""

    def __init__(self, config: clients.ClientConfig, admin: AdminClient, key: PartitionKey, stall: float) -> None:
        self._consumer = clients.consumer(config, consumer_group(key.replication))
        self._admin, self._key, self._stall = admin, key, stall

    def read(self, segment: Segment, digest: Digest | None) -> SegmentDigest:
        at = TopicPartition(self._key.target_topic, segment.partition)
        start = offsets.log_starts(self._admin, [at])[at]
        if start > segment.first:
            raise VerificationFailed(
                f"{self._key.source}: unverifiable: {at} on the target now starts at {start}, records of ours from"
                f" {segment.first} on were removed (retention or deletion) before they could be read back",
                "raise retention.ms on the target; then give the proof up: kafka-replication approve-gap names the"
                " offsets",
            )
        count = 0
        try:
            with without_gc():
                for message in records(self._consumer, at, OffsetRange(segment.first, segment.last + 1), self._stall):
                    if digest is not None:
                        digest.add(message.timestamp()[1], message.key(), message.value(), headers_of(message))
                    count += 1
        except Stalled as e:
            stable = offsets.last_stable(self._admin, [at])[at]
            raise Stalled(
                f"{e.what}; the last stable offset of {at} is {stable}, waiting for {segment.last + 1}", e.remedy
            ) from e
        return SegmentDigest(count, "" if digest is None else digest.hexdigest())

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def segment_reader(config: clients.ClientConfig, key: PartitionKey, stall: float) -> Iterator[SegmentReader]:
    reader = SegmentReader(config, clients.admin(config), key, stall)
    try:
        yield reader
    finally:
        reader.close()
