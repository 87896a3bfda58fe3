"""Reads ids, partitions, offsets and configuration of topics, and creates topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from weakref import WeakKeyDictionary

import tenacity
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported without saying so
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
    TopicDescription,
)

from kafka_replication.kafka import offsets
from kafka_replication.kafka.clients import translate
from kafka_replication.kafka.shared_reads import SharedRead
from kafka_replication.model.errors import Refused, Unreachable
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.planning.snapshot import Topic
from kafka_replication.sinks.port import TargetState

TIMEOUT = 30.0


def cluster_id(admin: AdminClient) -> str:
    try:
        return str(admin.describe_cluster(request_timeout=TIMEOUT).result(TIMEOUT * 2).cluster_id)
    except KafkaException as e:
        raise translate(e.args[0], "describing the cluster") from e


def names(admin: AdminClient) -> list[str]:
    try:
        return sorted(admin.list_topics(timeout=TIMEOUT).topics)
    except KafkaException as e:
        raise translate(e.args[0], "listing topics") from e


def _descriptions(admin: AdminClient, topics: Iterable[str]) -> dict[str, TopicDescription]:
    wanted = sorted(set(topics))
    if not wanted:
        return {}
    descriptions = {}
    for name, future in admin.describe_topics(TopicCollection(wanted), request_timeout=TIMEOUT).items():
        try:
            descriptions[name] = future.result(TIMEOUT * 2)
        except KafkaException as e:
            if e.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise translate(e.args[0], f"describing topic {name}") from e
    return descriptions


def topic_ids(admin: AdminClient, topics: Iterable[str]) -> dict[str, str]:
    """The ids (KIP-516) of those topics that exist."""
    return {name: str(description.topic_id) for name, description in _descriptions(admin, topics).items()}


def states(admin: AdminClient, topics: Iterable[str]) -> dict[str, TargetState]:
    """The id and the partitions of those topics that exist."""
    return {
        name: TargetState(str(description.topic_id), frozenset(partition.id for partition in description.partitions))
        for name, description in _descriptions(admin, topics).items()
    }


_ids: WeakKeyDictionary[AdminClient, SharedRead[str, str]] = WeakKeyDictionary()


def check_id(admin: AdminClient, name: str, expected: str, side: str) -> None:
    """Raise Refused unless the topic still has this id.

    Threads share the request, because the client describes every partition of the topic: 17 ms of processor time for
    1,000 partitions.
    """
    ids = _ids.get(admin) or _ids.setdefault(admin, SharedRead())
    actual = ids.ask(name, lambda names: topic_ids(admin, names))
    if actual != expected:
        raise Refused(
            f"{name} on the {side}: the topic was re-created or deleted during the copy: its id was {expected}, "
            + ("it does not exist now" if actual is None else f"it is {actual} now"),
            "plan again: the plan says what to do",
        )


def configs(admin: AdminClient, topics: Iterable[str]) -> dict[str, dict[str, str]]:
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in sorted(set(topics))]
    if not resources:
        return {}
    try:
        futures = admin.describe_configs(resources, request_timeout=TIMEOUT)
        return {
            at.name: {k: str(v.value) for k, v in future.result(TIMEOUT * 2).items()} for at, future in futures.items()
        }
    except KafkaException as e:
        raise translate(e.args[0], "reading topic configurations") from e


def describe(admin: AdminClient, topics: Iterable[str]) -> dict[str, Topic]:
    """Those of ``topics`` that exist, with the offsets of every partition. Raises Unreachable."""
    described = _descriptions(admin, topics)
    settings = configs(admin, described)
    partition_offsets = offsets.all_three(
        admin, [TopicPartition(name, p.id) for name, d in described.items() for p in d.partitions]
    )
    return {
        name: Topic(
            name=name,
            topic_id=str(d.topic_id),
            partitions={p.id: partition_offsets[TopicPartition(name, p.id)] for p in d.partitions},
            replication_factor=min((len(p.replicas) for p in d.partitions), default=0),
            config=settings[name],
        )
        for name, d in described.items()
    }


def create(
    admin: AdminClient, name: str, partitions: int, replication_factor: int | None, config: Mapping[str, str]
) -> None:
    """Create the topic and wait until every partition has a leader. An existing topic stays as it is."""
    topic = NewTopic(name, partitions, -1 if replication_factor is None else replication_factor, config=dict(config))
    try:
        admin.create_topics([topic], request_timeout=TIMEOUT)[name].result(TIMEOUT * 2)
    except KafkaException as e:
        if e.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            error = e.args[0]
            if error.retriable():
                raise translate(error, f"creating topic {name}") from e
            raise Refused(
                f"cannot create the target topic {name}: {error.str()}", "create it by hand, or correct target_topics"
            ) from e
    _await_leaders(admin, name)


def _await_leaders(admin: AdminClient, name: str, timeout: float = TIMEOUT) -> None:
    """Wait until every partition has a leader. Raises Unreachable, naming the last error, after ``timeout`` seconds."""
    tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(Unreachable),
        stop=tenacity.stop_after_delay(timeout),
        wait=tenacity.wait_exponential(multiplier=0.05, max=1.0),
        reraise=True,
    )(_check_leaders, admin, name)


def _check_leaders(admin: AdminClient, name: str) -> None:
    try:
        partitions = admin.list_topics(name, timeout=5.0).topics[name].partitions
    except KafkaException as e:
        raise translate(e.args[0], f"waiting for the leaders of the new topic {name}") from e
    leaderless = [number for number, partition in partitions.items() if partition.leader < 0]
    if leaderless or not partitions:
        raise Unreachable(
            f"the new topic {name} has no leader" + (f" for partition {leaderless[0]}" if leaderless else ""),
            "check that enough brokers run; the next run continues from here",
        )
