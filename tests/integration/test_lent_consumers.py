"""Sessions of short ranges use one consumer after the other: none sees what an earlier one has fetched."""

from __future__ import annotations

import random
import uuid
from itertools import islice

from kafka_replication.kafka.client import consumer_pool
from kafka_replication.kafka.client.listening_consumers import lent
from kafka_replication.kafka.client.throttling import Throttling
from kafka_replication.kafka.metadata import topics
from kafka_replication.kafka.read.partition_reader import PartitionReader
from kafka_replication.kafka.read.scan import offset_of
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from tests.support.scenario import Cluster, Rec

EACH, PARTITIONS = 400, 3


def test_nothing_of_an_earlier_session_arrives(clusters: tuple[Cluster, Cluster]) -> None:
    source, _ = clusters
    name, dice = f"lent-{uuid.uuid4().hex[:8]}", random.Random(11)
    source.create(name, PARTITIONS)
    for partition in range(PARTITIONS):
        source.produce(name, [Rec(b"k", b"%d %d" % (partition, number)) for number in range(EACH)], partition)
    config, used = {"bootstrap.servers": source.bootstrap}, set[int]()
    topic_id = topics.topic_ids(source.admin, [name])[name]
    for _ in range(40):
        partition, first = dice.randrange(PARTITIONS), dice.randrange(EACH)
        until = dice.randrange(first, EACH) + 1
        with lent(config, "lent", Throttling("here", "source"), topic_id) as consumer:
            used.add(id(consumer))
            reader = PartitionReader(consumer, TopicPartition(name, partition))
            wanted = islice(reader.records(OffsetRange(first, until)), dice.choice([1, until - first]))
            found = [(offset_of(message), message.value()) for message in wanted]
        assert found == [(first + number, b"%d %d" % (partition, first + number)) for number in range(len(found))]
        assert found
    assert len(used) == 1, "one consumer was used again and again"
    consumer_pool.close_idle()


def test_one_is_not_used_for_a_topic_that_was_created_again(clusters: tuple[Cluster, Cluster]) -> None:
    source, _ = clusters
    config, throttling = {"bootstrap.servers": source.bootstrap}, Throttling("here", "source")
    with lent(config, "lent", throttling, "first id") as first:
        pass
    with lent(config, "lent", throttling, "second id") as second:
        assert second is not first
    with lent(config, "lent", throttling, "first id") as again:
        assert again is first
    with lent(config, "lent", throttling, None) as own:
        assert own is not first and own is not second
    consumer_pool.close_idle()
