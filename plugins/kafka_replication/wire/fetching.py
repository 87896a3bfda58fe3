"""Fetch, version 11: the batches of one partition, up to its last stable offset unless asked otherwise."""

from __future__ import annotations

from datetime import timedelta

from kio.schema.fetch.v11.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.fetch.v11.response import FetchResponse, PartitionData
from kio.schema.offset_for_leader_epoch.v2.request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kio.schema.offset_for_leader_epoch.v2.response import OffsetForLeaderEpochResponse
from kio.schema.types import TopicName
from kio.static.primitive import i8, i32, i32Timedelta, i64

from kafka_replication.wire.connection import Connection

READ_UNCOMMITTED, READ_COMMITTED = i8(0), i8(1)


def ask(
    connection: Connection,
    topic: str,
    partition: int,
    offset: int,
    most: int,
    wait: float,
    isolation: i8 = READ_COMMITTED,
) -> None:
    """Send a request for at most ``most`` bytes from ``offset`` on, but at least one batch. The broker waits ``wait``
    seconds for one.
    """
    asked = FetchPartition(partition=i32(partition), fetch_offset=i64(offset), partition_max_bytes=i32(most))
    request = FetchRequest(
        max_wait=i32Timedelta.parse(timedelta(seconds=wait)),
        min_bytes=i32(1),
        max_bytes=i32(most),
        isolation_level=isolation,
        topics=(FetchTopic(topic=TopicName(topic), partitions=(asked,)),),
        forgotten_topics_data=(),
    )
    connection.request(request)


def answer(connection: Connection) -> tuple[PartitionData | None, float]:
    """The answer for the partition, and the seconds for which a quota makes this client wait. The answer is None if the
    broker answers nothing before that time is over.
    """
    response, data = connection.answer(FetchResponse), None
    seconds = response.throttle_time.total_seconds()
    with connection.understanding():
        if response.responses or not seconds:
            data = response.responses[0].partitions[0]
    return data, seconds


def end_of_epoch(connection: Connection, topic: str, partition: int, epoch: int) -> int | None:
    """One past the last offset of this leader epoch, or of the latest one before it; None if the broker does not know
    it.
    """
    asked = OffsetForLeaderPartition(partition=i32(partition), leader_epoch=i32(epoch))
    request = OffsetForLeaderEpochRequest(topics=(OffsetForLeaderTopic(topic=TopicName(topic), partitions=(asked,)),))
    response = connection.ask(request, OffsetForLeaderEpochResponse)
    with connection.understanding():
        epoch_end = response.topics[0].partitions[0]
    return None if epoch_end.error_code or epoch_end.end_offset < 0 else int(epoch_end.end_offset)
