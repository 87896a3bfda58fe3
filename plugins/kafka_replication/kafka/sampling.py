"""Reads the first records of ranges to estimate the rest of them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from kafka_replication.kafka import clients
from kafka_replication.kafka.cursor import records
from kafka_replication.kafka.scan import offset_of
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.planning.backfill import Sample

RECORDS = 300
PARTITIONS = 100  # the others get the average of these
_SMALL = {"fetch.message.max.bytes": 256 << 10, "queued.max.messages.kbytes": 1 << 10, "queued.min.messages": 1}


def samples(
    source: clients.ClientConfig, group: str, ranges: Mapping[TopicPartition, OffsetRange]
) -> dict[TopicPartition, Sample]:
    """A sample of each range. A range whose partition does not answer has none: an estimate must not stop a run."""
    reader = clients.consumer(source, group, **_SMALL)
    sampled: dict[TopicPartition, Sample] = {}
    try:
        for at, wanted in itertools.islice(ranges.items(), PARTITIONS):
            try:
                read = [
                    (
                        offset_of(message),
                        len(message.key() or b"") + len(message.value() or b""),
                        message.timestamp()[1],
                    )
                    for message in itertools.islice(records(reader, at, wanted, stall=10.0), RECORDS)
                ]
            except ReplicationError:
                continue
            span = read[-1][0] + 1 - wanted.from_ if len(read) == RECORDS else wanted.span
            times = [time for _, _, time in read if time > 0]
            sampled[at] = Sample(len(read), span, sum(size for _, size, _ in read), min(times, default=None))
    finally:
        reader.close()
    if sampled:
        read, span, size = (
            sum(getattr(sample, name) for sample in sampled.values()) for name in ("records", "span", "bytes")
        )
        sampled.update(dict.fromkeys(itertools.islice(ranges, PARTITIONS, None), Sample(read, span, size, None)))
    return sampled
