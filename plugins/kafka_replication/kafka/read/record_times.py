"""Reads the timestamp of the first record at some offsets: how old is what was not copied yet?"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from kafka_replication.kafka.client import clients
from kafka_replication.kafka.client.consumer_pool import borrowed
from kafka_replication.kafka.read.scan import POLL, is_left_over, is_unreadable, offset_of, wait_until_idle
from kafka_replication.model.offsets import TopicPartition

AT_ONCE = 100
# One record is enough. The size is that of a whole batch of records, which a broker sends even if it is larger.
_SMALL: dict[str, Any] = {
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
    with borrowed(config, group, **_SMALL) as reader:
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
        at = None if message is None else _place(message)
        if message is None or at is None or at not in offsets or at in read or is_left_over(message, offsets[at]):
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


def _place(message: Message) -> TopicPartition | None:
    topic, partition = message.topic(), message.partition()
    return None if topic is None or partition is None or partition < 0 else TopicPartition(topic, partition)
