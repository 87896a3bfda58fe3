"""The signs that somebody still works with topics of a cluster: the time of the last write, the members of groups. And
a rule that denies producers to write.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as Asked
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # re-exported silently

from kafka_replication.kafka import acls, groups, topics
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.model.rights import Operation
from kafka_replication.planning.acls import ANY, DENY, EVERYBODY, LITERAL, TOPIC, Acl

_NEWEST: OffsetSpec = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]


def last_writes(admin: AdminClient, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
    """The highest timestamp of each partition, in milliseconds, or nothing where it has no record or does not say it.

    Brokers before 3.0 do not know the question (KIP-734).
    """
    asked = {Asked(at.topic, at.partition): _NEWEST for at in partitions}
    found = dict[TopicPartition, int]()
    for at, future in (admin.list_offsets(asked, request_timeout=topics.TIMEOUT) if asked else {}).items():
        with suppress(KafkaException, TimeoutError):
            told = future.result(2 * topics.TIMEOUT)
            if told.timestamp >= 0:
                found[TopicPartition(at.topic, at.partition)] = told.timestamp
    return found


def members(admin: AdminClient, names: Collection[str]) -> Mapping[str, int]:
    """The number of members of each of these groups that has some, and -1 where it is not known."""

    def ask(group: str) -> Future[Any]:
        future: Future[Any] = admin.describe_consumer_groups([group], request_timeout=topics.TIMEOUT)[group]
        return future

    answers = groups.each(names, ask)
    counts = {name: -1 if isinstance(told, KafkaError) else len(told.members) for name, told in answers}
    return {name: count for name, count in counts.items() if count}


def denial(topic: str) -> Acl:
    """The rule by which nobody but a super user may write to the topic."""
    return Acl(
        resource=TOPIC,
        pattern=LITERAL,
        name=topic,
        principal=EVERYBODY,
        host=ANY,
        operation=Operation.WRITE.name,
        permission=DENY,
    )


def denied(admin: AdminClient, names: Collection[str]) -> set[str]:
    """Those of these topics that have this rule. Raises NotAuthorized, Refused without an authorizer, Unreachable."""
    rules = acls.read(admin)
    return {name for name in names if denial(name) in rules}
