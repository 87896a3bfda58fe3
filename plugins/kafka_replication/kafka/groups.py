"""Consumer groups of one cluster: their kinds and members, what they have committed, and commits in their name.

One group is asked for in each request: confluent-kafka takes no more. A leader epoch is never committed: that of
another cluster lets Java's consumer read nothing (measured with Kafka 4.3.1).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Asked
from confluent_kafka.admin import AclOperation, AdminClient  # type: ignore[attr-defined]  # re-exported silently

from kafka_replication.kafka import topics
from kafka_replication.kafka.connect_diagnosis import Asked as AskedFor
from kafka_replication.kafka.connect_diagnosis import translate
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.model.rights import Operation

AT_ONCE: Final = 200  # requests that are under way together
OTHER: Final = "share or streams"
# A member is in the group, or its last one left without saying so. The broker decides, so that nobody is overtaken.
HAS_MEMBERS: Final = frozenset(
    {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.STALE_MEMBER_EPOCH, KafkaError.NON_EMPTY_GROUP}
)


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed offset: everything before it is done. ``metadata`` is a text of the application."""

    offset: int
    metadata: str = ""


class ActiveGroup(Exception):
    """Raised if the brokers refuse a commit because the group has members."""


def kinds(admin: AdminClient) -> dict[str, str]:
    """The groups that this client may describe, each with its kind: ``classic``, ``consumer`` (KIP-848), or `OTHER`.

    Raises Unreachable.
    """
    listed = topics.answer(
        admin, "listing consumer groups", lambda seconds: admin.list_consumer_groups(request_timeout=seconds)
    )
    for error in listed.errors:  # one for each broker that did not answer: its groups are not listed
        raise translate(error.args[0], "listing consumer groups", AskedFor.of(admin))
    known = {group.group_id: str(group.type.name).lower() for group in listed.valid}
    try:
        with warnings.catch_warnings():  # the call that replaces it leaves out share groups and those of Streams
            warnings.simplefilter("ignore", DeprecationWarning)
            everything = admin.list_groups(timeout=topics.TIMEOUT)
    except KafkaException as e:
        raise translate(e.args[0], "listing groups", AskedFor.of(admin)) from e
    return {group.id: OTHER for group in everything} | {
        name: "classic" if kind == "unknown" else kind for name, kind in known.items()
    }


def committed(
    admin: AdminClient, groups: Collection[str]
) -> tuple[dict[str, dict[TopicPartition, Committed | None]], dict[str, ReplicationError]]:
    """The committed offsets of each group, None for one that an open transaction is about to change; and the errors of
    groups whose offsets cannot be read.
    """
    read, failed = dict[str, dict[TopicPartition, Committed | None]](), dict[str, ReplicationError]()

    def ask(group: str) -> Future[Any]:
        request = [ConsumerGroupTopicPartitions(group)]
        return admin.list_consumer_group_offsets(request, require_stable=True, request_timeout=topics.TIMEOUT)[group]

    for group, answer in each(groups, ask):
        if isinstance(answer, KafkaError):
            need = AskedFor.of(admin, group=(Operation.DESCRIBE, group))
            failed[group] = translate(answer, f"reading the offsets of group {group}", need)
            continue
        read[group] = {
            TopicPartition(told.topic, told.partition): None
            if told.error
            else Committed(told.offset, told.metadata or "")
            for told in answer.topic_partitions
            if told.error or told.offset >= 0
        }
    return read, failed


def commit(admin: AdminClient, group: str, places: Mapping[TopicPartition, Committed]) -> dict[TopicPartition, str]:
    """Commit these places in the name of a group without members; creates the group if it does not exist. Returns the
    errors of single partitions.

    Raises ActiveGroup if it has members, and other errors of the request.
    """
    asked = [Asked(at.topic, at.partition, place.offset, place.metadata) for at, place in places.items()]
    request = [ConsumerGroupTopicPartitions(group, asked)]
    future = admin.alter_consumer_group_offsets(request, request_timeout=topics.TIMEOUT)[group]
    need = AskedFor.of(admin, group=(Operation.READ, group))
    ((_, answer),) = each([group], lambda _: future)
    if isinstance(answer, KafkaError):
        if answer.code() in HAS_MEMBERS:
            raise ActiveGroup
        raise translate(answer, f"committing offsets of group {group}", need)
    refused = {TopicPartition(told.topic, told.partition): told.error for told in answer.topic_partitions if told.error}
    if any(error.code() in HAS_MEMBERS for error in refused.values()):
        raise ActiveGroup
    for error in refused.values():
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            raise translate(error, f"committing offsets of group {group}", need)
    return {at: f"{error.name()}: {error.str()}" for at, error in refused.items()}


def without_right(admin: AdminClient, groups: Collection[str]) -> list[str]:
    """Those of these groups whose offsets this client may not commit. Groups need not exist."""

    def ask(group: str) -> Future[Any]:
        asked = admin.describe_consumer_groups(
            [group], include_authorized_operations=True, request_timeout=topics.TIMEOUT
        )
        future: Future[Any] = asked[group]
        return future

    denied = list[str]()
    for group, answer in each(groups, ask):
        if isinstance(answer, KafkaError):
            denied += [group] if answer.code() == KafkaError.GROUP_AUTHORIZATION_FAILED else []
        elif answer.authorized_operations is not None and AclOperation.READ not in answer.authorized_operations:
            denied.append(group)
    return denied


def members_of(admin: AdminClient, groups: Collection[str]) -> Mapping[str, int]:
    """The number of members of each of these groups that has some, and -1 where it is not known."""

    def ask(group: str) -> Future[Any]:
        future: Future[Any] = admin.describe_consumer_groups([group], request_timeout=topics.TIMEOUT)[group]
        return future

    counts = {name: -1 if isinstance(told, KafkaError) else len(told.members) for name, told in each(groups, ask)}
    return {name: count for name, count in counts.items() if count}


def each(groups: Collection[str], ask: Callable[[str], Future[Any]]) -> Iterator[tuple[str, Any]]:
    """The answer of each group, or its KafkaError."""
    names = sorted(groups)
    for first in range(0, len(names), AT_ONCE):
        under_way = {name: ask(name) for name in names[first : first + AT_ONCE]}
        for name, future in under_way.items():
            try:
                yield name, future.result(2 * topics.TIMEOUT)
            except KafkaException as e:
                yield name, e.args[0]
            except TimeoutError:
                yield name, KafkaError(KafkaError._TIMED_OUT, "no answer from the client")
