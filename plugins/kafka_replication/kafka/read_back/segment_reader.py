"""Reads copies back with a new ``read_committed`` consumer, as any consumer sees them."""

from __future__ import annotations

from contextlib import closing
from functools import cached_property
from typing import TYPE_CHECKING

from kafka_replication.kafka.client import clients
from kafka_replication.kafka.metadata import offsets
from kafka_replication.kafka.metadata.open_transactions import named
from kafka_replication.kafka.quarantine import quarantine_record
from kafka_replication.kafka.quarantine.quarantine_scan import QuarantineEnds
from kafka_replication.kafka.read.cursor import RUN_AGAIN, Cursor, batch_cursor
from kafka_replication.kafka.read.scan import Truncated, headers_of
from kafka_replication.ledger.entries import FailedRecord
from kafka_replication.ledger.placement import Part
from kafka_replication.model.errors import GapFound, Stalled, TargetLost, VerificationFailed
from kafka_replication.model.keys import PartitionKey, consumer_group
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.runtime.garbage import without_gc
from kafka_replication.verification.digest import BatchDigest, Fingerprint
from kafka_replication.verification.digests import Digest
from kafka_replication.verification.verify import PartDigest, removed_early

if TYPE_CHECKING:
    from kafka_replication.kafka.batches.reading_back import BatchCursor

OPEN = 8  # consumers at a time; each may hold `queued.max.messages.kbytes` of records


class SegmentReader:
    """A `TargetReader` that reads part after part with one consumer per target partition.

    Between the ranges of a part it reads on over records of others, or seeks if they are many. So each partition is
    read once from the first to the last part, however many chunks lie between each other there.
    """

    def __init__(self, config: clients.ClientConfig, key: PartitionKey, stall: float, limit: int | None) -> None:
        self._config, self._key, self._stall, self._limit = config, key, stall, limit
        self._cursors: dict[TopicPartition, Cursor] = {}  # the one that was used last is the last
        self._scans: dict[TopicPartition, BatchCursor] = {}

    @cached_property
    def _quarantine(self) -> QuarantineEnds:
        return QuarantineEnds(clients.shared_admin(self._config))

    def read(self, part: Part, digest: Digest | None) -> PartDigest:
        at = TopicPartition(self._key.target_topic, part.partition)
        try:
            if isinstance(digest, BatchDigest):
                if at not in self._scans:
                    self._scans[at] = batch_cursor(self._config, at, self._stall, self._limit)
                count = self._scans[at].read(part.offsets, digest)
            else:
                count = self._records(at, part, digest)
        except GapFound as e:
            raise self._removed(at, part) from e
        except Truncated as e:
            raise TargetLost(e.what, RUN_AGAIN) from e
        except Stalled as e:
            admin = clients.shared_admin(self._config)
            if offsets.high_watermarks(admin, [at])[at] < part.until:
                raise self._removed(at, part) from e
            stable = offsets.last_stable(admin, [at])[at]
            raise Stalled(
                f"{e.what}; the last stable offset of {at} is {stable}, waiting for {part.until}{named(admin, at)}",
                e.remedy,
            ) from e
        return PartDigest(count, "" if digest is None else digest.hexdigest())

    def _records(self, at: TopicPartition, part: Part, digest: Fingerprint | None) -> int:
        """Returns how many there are."""
        cursor, count = self._cursor(at), 0
        with without_gc():
            for range_ in part.offsets:
                for message in cursor.read(range_):
                    if digest is not None:
                        digest.add(message.timestamp()[1], message.key(), message.value(), headers_of(message))
                    count += 1
        return count

    def quarantined(self, failed: FailedRecord) -> bool:
        assert failed.place is not None
        if not self._quarantine.has(failed.place):
            return False
        at = TopicPartition(failed.place.topic, failed.place.partition)
        try:
            found = self._cursor(at).read(OffsetRange(failed.place.offset, failed.place.offset + 1))
            return any(quarantine_record.is_copy_of(message, self._key, failed) for message in found)
        except GapFound:
            return False

    def _cursor(self, at: TopicPartition) -> Cursor:
        cursor = self._cursors.pop(at, None)
        if cursor is None:
            if len(self._cursors) >= OPEN:
                self._cursors.pop(next(iter(self._cursors))).close()
            group = consumer_group(self._key.replication)
            cursor = Cursor(self._config, group, at, self._stall, self._limit)
        self._cursors[at] = cursor
        return cursor

    def _removed(self, at: TopicPartition, part: Part) -> TargetLost | VerificationFailed:
        admin = clients.shared_admin(self._config)
        start, end = offsets.log_starts(admin, [at])[at], offsets.high_watermarks(admin, [at])[at]
        if start <= part.first and end < part.until:
            return TargetLost(
                f"{self._key.source}: {at} on the target ends at {end}, but our records were at"
                f" [{part.first}, {part.until}): its log was truncated after they were committed",
                RUN_AGAIN,
            )
        return removed_early(
            self._key,
            at,
            start,
            f"from {part.first} on",
            "raise retention.ms on the target; then copy again what the source still has (kafka-replication backfill),"
            " or accept the unverified offsets with kafka-replication approve-gap",
        )

    def close(self) -> None:
        for cursor in self._cursors.values():
            cursor.close()
        for scan in self._scans.values():
            scan.close()


def segment_reader(
    config: clients.ClientConfig, key: PartitionKey, stall: float, limit: int | None = None
) -> closing[SegmentReader]:
    """``limit`` is in bytes a second; None is no limit."""
    return closing(SegmentReader(config, key, stall, limit))
