"""Reads the first records of ranges to estimate the rest of them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextlib import closing

from confluent_kafka import Consumer

from kafka_replication.kafka.client import clients
from kafka_replication.kafka.read.partition_reader import PartitionReader
from kafka_replication.kafka.read.scan import offset_of
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.planning.backfill.backfill_plan import Sample

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
