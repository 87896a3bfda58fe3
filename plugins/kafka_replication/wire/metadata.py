"""The word of one broker: ids of topics, leaders of partitions with their epochs, the end of a log that it leads."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Collection
from typing import NamedTuple

from kio.schema.api_versions.v0.request import ApiVersionsRequest
from kio.schema.api_versions.v0.response import ApiVersionsResponse
from kio.schema.describe_log_dirs.v1.request import DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v1.response import DescribeLogDirsResponse
from kio.schema.describe_topic_partitions.v0.request import DescribeTopicPartitionsRequest, TopicRequest
from kio.schema.describe_topic_partitions.v0.response import DescribeTopicPartitionsResponse
from kio.schema.list_offsets.v5.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.list_offsets.v5.response import ListOffsetsResponse
from kio.schema.metadata.v9.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v9.response import MetadataResponse
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i64

from kafka_replication.wire.connection import Connection

_CONSUMER, _READ_UNCOMMITTED, _LATEST = BrokerId(-1), i8(0), i64(-1)


class Leader(NamedTuple):
    """The broker that leads a partition, -1 for none, in this leader epoch."""

    broker: int
    epoch: int


class Told(NamedTuple):
    """The metadata of one broker: the addresses of the brokers that it knows, and the leaders of partitions."""

    brokers: dict[int, tuple[str, int]]
    leaders: dict[tuple[str, int], Leader]


def metadata(broker: Connection, topics: Collection[str]) -> Told:
    """Ask one broker. A topic that it does not know has no partitions."""
    request = MetadataRequest(
        topics=tuple(MetadataRequestTopic(name=TopicName(name)) for name in sorted(topics)),
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    response = broker.ask(request, MetadataResponse)
    with broker.understanding():
        return Told(
            {int(node.node_id): (node.host, int(node.port)) for node in response.brokers},
            {
                (str(topic.name), int(partition.partition_index)): Leader(
                    int(partition.leader_id), int(partition.leader_epoch)
                )
                for topic in response.topics
                for partition in topic.partitions
            },
        )


def newest_versions(broker: Connection) -> dict[int, int]:
    """The newest version of each request that this broker takes, by the request's number."""
    response = broker.ask(ApiVersionsRequest(), ApiVersionsResponse)
    with broker.understanding():
        return {int(key.api_key): int(key.max_version) for key in response.api_keys}


def topic_ids(broker: Connection, topics: Collection[str]) -> dict[str, str]:
    """The ids, as the client writes them, of those topics that this broker knows and shows. It tells only one
    partition of each.
    """
    ids = dict[str, str]()
    for name in topics:  # one at a time, because brokers leave out the topics behind the limit
        request = DescribeTopicPartitionsRequest(
            topics=(TopicRequest(name=TopicName(name)),), response_partition_limit=i32(1)
        )
        response = broker.ask(request, DescribeTopicPartitionsResponse)
        with broker.understanding():
            for topic in response.topics:
                if not topic.error_code and topic.topic_id is not None and topic.name == name:
                    ids[name] = b64encode(topic.topic_id.bytes).decode().rstrip("=")
    return ids


def stored_topics(broker: Connection) -> set[str]:
    """The topics of which this broker stores a partition, also those that this client may not describe. Empty without
    the right ``Describe`` on the cluster.
    """
    response = broker.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
    with broker.understanding():
        return {str(topic.name) for folder in response.results for topic in folder.topics}


def end(leader: Connection, topic: str, partition: int, epoch: int) -> int | None:
    """The high watermark of a partition; None if this broker does not lead it in exactly this leader epoch, or does not
    know the high watermark yet (KIP-207, KIP-320).
    """
    asked = ListOffsetsPartition(partition_index=i32(partition), current_leader_epoch=i32(epoch), timestamp=_LATEST)
    request = ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=_READ_UNCOMMITTED,
        topics=(ListOffsetsTopic(name=TopicName(topic), partitions=(asked,)),),
    )
    response = leader.ask(request, ListOffsetsResponse)
    with leader.understanding():
        answer = response.topics[0].partitions[0]
    return None if answer.error_code or answer.offset < 0 else int(answer.offset)
