"""Reads copies back with a new ``read_committed`` consumer, as any consumer sees them.

Reads one partition on source and target, to find out what became of the records that were sent.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import ExitStack, closing
from functools import cached_property
from typing import TYPE_CHECKING

from kafka_replication.kafka import clients, offsets, quarantine
from kafka_replication.kafka.brokers import named
from kafka_replication.kafka.cursor import RUN_AGAIN, Cursor, batch_cursor
from kafka_replication.kafka.quarantine import QuarantineEnds
from kafka_replication.kafka.reading import Truncated, headers_of
from kafka_replication.ledger.entries import FailedRecord, Receipt
from kafka_replication.ledger.placement import Part
from kafka_replication.model.errors import GapFound, Stalled, TargetLost, VerificationFailed
from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition, consumer_group
from kafka_replication.runtime.garbage import without_gc
from kafka_replication.targets.port import RecordReader, Standing
from kafka_replication.verification.digests import BatchDigest, Digest, Fingerprint
from kafka_replication.verification.matching import Seen, Sent
from kafka_replication.verification.newest import Change, NewestRecords
from kafka_replication.verification.verify import PartDigest, removed_early

if TYPE_CHECKING:
    from kafka_replication.kafka.batch_scan import BatchCursor


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
            copies = self._cursor(at).read(OffsetRange(failed.place.offset, failed.place.offset + 1))
            return any(quarantine.is_copy_of(message, self._key, failed) for message in copies)
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


class PartitionSides:
    """A `Sides`: Kafka as the source, and what stands on a target of any kind. Each side is opened when it is first
    needed.
    """

    def __init__(self, source: clients.ClientConfig, standing: Standing, key: PartitionKey, stall: float) -> None:
        """``stall`` is in seconds."""
        self._source, self._standing, self._key, self._stall = source, standing, key, stall
        self._open = ExitStack()

    @cached_property
    def _reader(self) -> Cursor:
        group = consumer_group(self._key.replication)
        return self._open.enter_context(closing(Cursor(self._source, group, self._key.source, self._stall)))

    def source_log(self) -> OffsetRange:
        return offsets.readable_log(clients.shared_admin(self._source), self._key.source)

    def source(self, wanted: OffsetRange, without: Container[int] = ()) -> Iterator[Sent]:
        return self._reader.sent(wanted, without=without)

    def source_digest(self, wanted: OffsetRange, digest: Fingerprint) -> PartDigest:
        self._reader.add_to(digest, wanted)
        return PartDigest(digest.count, digest.hexdigest())

    def written(self, receipt: Receipt, change: Change) -> NewestRecords:
        return NewestRecords.of(made for record in self._reader.copied(receipt) for made in change(record))

    def around(self, wanted: OffsetRange) -> Iterator[Sent]:
        return self._reader.sent(wanted, lenient=True)

    @cached_property
    def _target_reader(self) -> RecordReader:
        return self._open.enter_context(self._standing.reader(self._key.target))

    def target_log(self, expected: int) -> OffsetRange:
        return self._standing.at_rest(self._key.target, expected)

    def check_all_shown(self, until: int) -> None:
        self._standing.check_all_shown(self._key.target, until)

    def target(self, wanted: OffsetRange) -> Iterator[Seen]:
        return self._target_reader.seen(wanted)

    def close(self) -> None:
        self._open.close()
