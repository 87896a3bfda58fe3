"""The word of one broker about the bytes of its partitions' logs: DescribeLogDirs, KIP-113."""

from __future__ import annotations

from collections.abc import Collection

from kio.schema.describe_log_dirs.v1.request import DescribableLogDirTopic, DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v1.response import DescribeLogDirsResponse
from kio.schema.types import TopicName
from kio.static.primitive import i32

from kafka_replication.wire.connection import Connection


def sizes(broker: Connection, partitions: Collection[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """The bytes of those partitions that this broker has on a disk; none without the right Describe on the cluster."""
    topics = {topic: [i32(number) for name, number in sorted(partitions) if name == topic] for topic, _ in partitions}
    request = DescribeLogDirsRequest(
        topics=tuple(
            DescribableLogDirTopic(topic=TopicName(name), partitions=tuple(numbers)) for name, numbers in topics.items()
        )
    )
    response = broker.ask(request, DescribeLogDirsResponse)
    with broker.understanding():
        return {
            (str(topic.name), int(one.partition_index)): int(one.partition_size)
            for disk in response.results
            if not disk.error_code
            for topic in disk.topics
            for one in topic.partitions
            if not one.is_future_key
        }
