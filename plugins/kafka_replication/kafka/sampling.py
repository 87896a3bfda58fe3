"""Reads the first records of ranges to estimate the rest of them.

Reads the timestamp of the first record at some offsets: how old is what was not copied yet?

Reads the last records of partitions, and when the last one was written.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, suppress
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # re-exported silently

from kafka_replication.kafka import clients, topics
from kafka_replication.kafka.consumer_pool import borrowed
from kafka_replication.kafka.reading import (
    POLL,
    PartitionReader,
    is_left_over,
    is_unreadable,
    offset_of,
    place_of,
    wait_until_idle,
)
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.planning.backfill_plan import Sample

RECORDS = 300
PARTITIONS = 100  # the others get the average of these
_SMALL = {"fetch.message.max.bytes": 256 << 10, "queued.max.messages.kbytes": 1 << 10, "queued.min.messages": 1}


def samples(
    source: clients.ClientConfig, group: str, ranges: Mapping[TopicPartition, OffsetRange]
) -> dict[TopicPartition, Sample]:
    """A sample of each range. A range that cannot be read has none: an estimate must not stop a run."""
    sampled: dict[TopicPartition, Sample] = {}
    with closing(clients.consumer(source, group, **_SMALL)) as reader:
        for at, wanted in itertools.islice(ranges.items(), PARTITIONS):
            if sample := _sample(reader, at, wanted):
                sampled[at] = sample
    if sampled:
        read, span, size = (
            sum(getattr(sample, name) for sample in sampled.values()) for name in ("records", "span", "bytes")
        )
        sampled.update(dict.fromkeys(itertools.islice(ranges, PARTITIONS, None), Sample(read, span, size, None)))
    return sampled


def _sample(reader: Consumer, at: TopicPartition, wanted: OffsetRange) -> Sample | None:
    """A sample of the first records of the range, or of those that can be read; None if none can."""
    read, whole = list[tuple[int, int, int]](), True
    try:
        for message in itertools.islice(PartitionReader(reader, at, stall=10.0).records(wanted), RECORDS):
            size = len(message.key() or b"") + len(message.value() or b"")
            read.append((offset_of(message), size, message.timestamp()[1]))
    except ReplicationError:
        if not read:
            return None
        whole = False
    span = wanted.span if whole and len(read) < RECORDS else read[-1][0] + 1 - wanted.from_
    times = [time for _, _, time in read if time > 0]
    return Sample(len(read), span, sum(size for _, size, _ in read), min(times, default=None))


AT_ONCE = 100
# One record is enough. The size is that of a whole batch of records, which a broker sends even if it is larger.
_SMALLEST: dict[str, Any] = {
    "fetch.message.max.bytes": 64 << 10,
    "queued.max.messages.kbytes": 4 << 10,
    "queued.min.messages": 1,
}


def first_times(
    config: clients.ClientConfig, group: str, offsets: Mapping[TopicPartition, int], seconds: float
) -> dict[TopicPartition, int | None]:
    """The timestamp in milliseconds of the first ``read_committed`` record at or after each offset.

    None: there is no such record, or it has no timestamp. A partition that did not answer within ``seconds``, which
    bound all partitions together, or whose offset cannot be read, is left out.
    """
    end = time.monotonic() + seconds
    read: dict[TopicPartition, int | None] = {}
    with borrowed(config, group, **_SMALLEST) as reader:
        items = sorted(offsets.items())
        for first in range(0, len(items), AT_ONCE):
            if time.monotonic() < end:
                read |= _read(reader, dict(items[first : first + AT_ONCE]), end)
    return read


def _read(reader: Consumer, offsets: Mapping[TopicPartition, int], end: float) -> dict[TopicPartition, int | None]:
    read: dict[TopicPartition, int | None] = {}
    failed: set[TopicPartition] = set()
    unreadable = list[Message]()
    reader.assign([ClientPartition(at.topic, at.partition, offset) for at, offset in offsets.items()])
    while len(read.keys() | failed) < len(offsets) and time.monotonic() < end:
        try:
            message = reader.poll(POLL)
        except KafkaException:
            return read
        if message is None:
            continue
        topic, partition = place_of(message)
        at = TopicPartition(topic, partition) if partition >= 0 else None
        if at is None or at not in offsets or at in read or is_left_over(message, offsets[at]):
            continue
        error = message.error()
        if error is None:
            millis = message.timestamp()[1]
            read[at] = millis if millis > 0 else None
            reader.incremental_unassign([ClientPartition(at.topic, at.partition)])
        elif error.code() == KafkaError._PARTITION_EOF:
            if offset_of(message) >= offsets[at]:
                read[at] = None
        else:
            failed.add(at)
            if is_unreadable(message):
                unreadable.append(message)
    for event in unreadable[-1:]:
        wait_until_idle(reader, event, ())
    return read


def last_records(
    source: clients.ClientConfig, group: str, ranges: Mapping[TopicPartition, OffsetRange], seconds: float
) -> Iterator[tuple[TopicPartition, int, bytes | None, bytes | None]]:
    """Offset, key and value of the records in these ranges, in the order of the partitions' numbers: of each topic some
    are read in any case. Ends after ``seconds``; a partition that cannot be read is left out.
    """
    end = time.monotonic() + seconds
    with closing(clients.consumer(source, group, **_SMALLEST)) as reader:
        for at in sorted(ranges, key=lambda at: (at.partition, at.topic)):
            if (left := end - time.monotonic()) <= 0:
                return
            try:
                for message in PartitionReader(reader, at, stall=left).records(ranges[at]):
                    yield at, offset_of(message), message.key(), message.value()
            except ReplicationError:
                continue


_NEWEST: OffsetSpec = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]


def last_writes(admin: AdminClient, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
    """The highest timestamp of each partition, in milliseconds, or nothing where it has no record or does not say it.

    Brokers before 3.0 do not know the question (KIP-734).
    """
    asked = {ClientPartition(at.topic, at.partition): _NEWEST for at in partitions}
    found = dict[TopicPartition, int]()
    for at, future in (admin.list_offsets(asked, request_timeout=topics.TIMEOUT) if asked else {}).items():
        with suppress(KafkaException, TimeoutError):
            told = future.result(2 * topics.TIMEOUT)
            if told.timestamp >= 0:
                found[TopicPartition(at.topic, at.partition)] = told.timestamp
    return found
