"""Reads ids, partitions, offsets and configuration of topics, and creates topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

import tenacity
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported without saying so
    AclOperation,
    AdminClient,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    ResourceType,
    TopicDescription,
)

from kafka_replication.copying.sink import TargetState
from kafka_replication.kafka import offsets
from kafka_replication.kafka.brokers import LargeTopics
from kafka_replication.kafka.clients import raise_if_shut_out
from kafka_replication.kafka.connect_diagnosis import Asked, translate
from kafka_replication.kafka.consumer_pool import OfEachAdmin, SharedRead
from kafka_replication.kafka.topic_creation import ask_to_create
from kafka_replication.model.errors import (
    NotAdmitted,
    NotAuthorized,
    NotReady,
    Refused,
    ReplicationError,
    Stalled,
    Unexpected,
    Unreachable,
)
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.model.rights import IMPLY_DESCRIBE, Operation
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning.broker_versions import GIVES_IDS, NO_IDS
from kafka_replication.planning.snapshot import Topic, without_description
from kafka_replication.targets.port import ToCreate

K = TypeVar("K")
V = TypeVar("V")
TIMEOUT = 30.0
LEARNING = 5.0  # seconds in which all brokers learn of a new topic
SHORTEST = 0.5  # the time-out of a request that is sent although hardly any time is left
NO_ID = "A" * 22  # zeros, from brokers that do not know ids or do not store them
_USUAL = offsets.Patience()
_SET_ON_TOPIC = ConfigSource.DYNAMIC_TOPIC_CONFIG


@dataclass(frozen=True, slots=True)
class ExistingTopics:
    """Those of some ``topics`` that exist; and the operations that the brokers deny this client, as far as they show
    it: ``Read``, ``Write`` and ``Alter`` for topics that exist, or if all three are denied; ``DescribeConfigs`` always;
    ``Create`` for topics that exist.
    """

    topics: Mapping[str, Topic]
    denied: Mapping[str, frozenset[Operation]]


def cluster_id(admin: AdminClient) -> str:
    described = answer(admin, "describing the cluster", lambda seconds: admin.describe_cluster(request_timeout=seconds))
    return str(described.cluster_id)


def answer(admin: AdminClient, doing: str, send: Callable[[float], Future[V]]) -> V:
    """The answer to a request for reading that concerns no topic. Raises its error."""
    (answered,) = _ask(admin, None, lambda seconds: {None: send(seconds)}).values()
    if isinstance(answered, KafkaError):
        raise translate(answered, doing, Asked.of(admin))
    return answered


def names(admin: AdminClient) -> list[str]:
    try:
        return sorted(admin.list_topics(timeout=TIMEOUT).topics)
    except KafkaException as e:
        raise translate(e.args[0], "listing topics", Asked.of(admin)) from e


def _describe_each(
    admin: AdminClient, topics: Iterable[str], most: float = TIMEOUT, *, rights: bool = False
) -> tuple[dict[str, TopicDescription], dict[str, ReplicationError]]:
    """The descriptions of the topics that exist, and the errors of those that cannot be described. With ``rights`` a
    description has what this client may do (KIP-430).
    """
    names = sorted(set(topics))
    descriptions, failed = dict[str, TopicDescription](), dict[str, ReplicationError]()
    if names:
        asked = _ask(
            admin,
            names[0],
            lambda seconds: admin.describe_topics(
                TopicCollection(names), request_timeout=seconds, include_authorized_operations=rights
            ),
            most,
        )
        for name, answer in asked.items():
            if not isinstance(answer, KafkaError):
                if str(answer.topic_id) != NO_ID:
                    descriptions[name] = answer
                else:
                    failed[name] = Refused(f"topic {name} has no id (KIP-516): {NO_IDS}", GIVES_IDS)
            elif answer.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                failed[name] = translate(
                    answer, f"describing topic {name}", Asked.of(admin, topic=(Operation.READ, name))
                )
    return descriptions, failed


def _ask(
    admin: AdminClient, topic: str | None, send: Callable[[float], Mapping[K, Future[V]]], most: float = TIMEOUT
) -> dict[K, V | KafkaError]:
    """The answers to a request for reading, and the errors, after about ``most`` seconds at the latest.

    As long as librdkafka 2.16 takes a broker that is down for the controller, such a request keeps a processor busy
    until its end. So the first one ends soon, and the next one comes after new metadata of some ``topic`` (None: of
    all).
    """
    end, seconds = time.monotonic() + most, min(offsets.FIRST_REQUEST, max(SHORTEST, most))
    while True:
        answers = dict[K, V | KafkaError]()
        for about, future in send(seconds).items():
            try:
                answers[about] = future.result(seconds + TIMEOUT)
            except KafkaException as e:
                answers[about] = e.args[0]
            except TimeoutError:  # this process slept, and the client has not noticed yet
                answers[about] = KafkaError(KafkaError._TIMED_OUT, "no answer from the client")
        errors = [answer for answer in answers.values() if isinstance(answer, KafkaError)]
        if errors:
            raise_if_shut_out(admin)
        if time.monotonic() >= end or not any(error.code() == KafkaError._TIMED_OUT for error in errors):
            return answers
        with suppress(KafkaException):
            admin.list_topics(topic, timeout=max(SHORTEST, min(5.0, end - time.monotonic())))
        seconds = max(SHORTEST, min(2 * seconds, end - time.monotonic()))


def descriptions(admin: AdminClient, topics: Iterable[str], *, rights: bool = False) -> dict[str, TopicDescription]:
    """The descriptions of those topics that exist. With ``rights`` they list the operations that this client may do."""
    existing, failed = _describe_each(admin, topics, rights=rights)
    for error in failed.values():
        raise error
    return existing


def states(admin: AdminClient, topics: Iterable[str]) -> dict[str, TargetState]:
    """The id (KIP-516) and the partitions of those topics that exist."""
    return {
        name: TargetState(str(description.topic_id), frozenset(partition.id for partition in description.partitions))
        for name, description in descriptions(admin, topics).items()
    }


_ids: OfEachAdmin[SharedRead[str, str | ReplicationError]] = OfEachAdmin(SharedRead)
_large = OfEachAdmin(LargeTopics)


def current_id(admin: AdminClient, name: str, most: float = TIMEOUT) -> str | None:
    """The id of the topic, or None if it does not exist. Threads share the request, as in `check_id`."""

    def ids_or_errors(names: Set[str]) -> dict[str, str | ReplicationError]:
        """The client is asked about the rest, so that its answer is the one about a topic that is gone."""
        large = _large.of(admin)
        told = large.ids(admin, names)
        descriptions, failed = _describe_each(admin, names - told.keys(), most)
        large.learn(descriptions.values())
        return {**told, **{name: str(described.topic_id) for name, described in descriptions.items()}, **failed}

    actual = _ids.of(admin).ask(name, ids_or_errors)
    if isinstance(actual, ReplicationError):
        raise actual
    return actual


def check_id(admin: AdminClient, name: str, expected: str, side: str, most: float = TIMEOUT) -> None:
    """Raise Refused unless the topic still has this id. Asks for about ``most`` seconds.

    Threads share the request, because the client describes every partition of the topic. A topic that cannot be
    described fails for its own threads alone.
    """
    actual = current_id(admin, name, most)
    if actual != expected:
        raise Refused(
            f"{name} on the {side}: the topic was re-created or deleted during the copy: its id was {expected}, "
            + ("it does not exist now" if actual is None else f"it is {actual} now"),
            "plan again: the plan says what to do",
        )


_configs: OfEachAdmin[SharedRead[str, dict[str, str] | ReplicationError]] = OfEachAdmin(SharedRead)


def config(admin: AdminClient, topic: str) -> dict[str, str]:
    """The configuration of one topic. Threads share the request. Raises an error if it cannot be read."""
    read = _configs.of(admin).ask(
        topic, lambda names: {name: one for part in configs(admin, names) for name, one in part.items()}
    )
    if isinstance(read, ReplicationError):
        raise read
    assert read is not None
    return read


def configs(admin: AdminClient, topics: Iterable[str]) -> tuple[dict[str, dict[str, str]], dict[str, ReplicationError]]:
    """The configurations of these topics, and the errors of those whose configuration cannot be read."""
    settings, failed = config_entries(admin, topics)
    return {topic: _values(entries) for topic, entries in settings.items()}, failed


def _values(entries: Mapping[str, ConfigEntry]) -> dict[str, str]:
    return {name: str(entry.value) for name, entry in entries.items()}


def config_entries(
    admin: AdminClient, topics: Iterable[str]
) -> tuple[dict[str, dict[str, ConfigEntry]], dict[str, ReplicationError]]:
    """The same as `configs`, with the source of each setting.

    The topics exist: a broker that does not know a new one yet is asked again for a while.
    """
    unanswered, until = sorted(set(topics)), time.monotonic() + LEARNING
    settings, failed = dict[str, dict[str, ConfigEntry]](), dict[str, ReplicationError]()
    while unanswered:
        asked = _ask_configs(admin, unanswered)
        unanswered = []
        for resource, answer in asked.items():
            if not isinstance(answer, KafkaError):
                settings[resource.name] = answer
            elif answer.code() == KafkaError.UNKNOWN_TOPIC_OR_PART and time.monotonic() < until:
                unanswered.append(resource.name)
            else:
                asked_for = Asked.of(admin, topic=(Operation.DESCRIBE_CONFIGS, resource.name))
                failed[resource.name] = translate(
                    answer, f"reading the configuration of topic {resource.name}", asked_for
                )
        time.sleep(0.1 if unanswered else 0)
    return settings, failed


def _ask_configs(
    admin: AdminClient, topics: Sequence[str]
) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    return _ask(admin, topics[0], lambda seconds: admin.describe_configs(resources, request_timeout=seconds))


def describe(admin: AdminClient, topics: Iterable[str], patience: offsets.Patience = _USUAL) -> ExistingTopics:
    """Those of ``topics`` that exist, with the offsets of every partition. Unknown parts have a `Trouble`."""
    wanted = set(topics)
    described, failed = _describe_each(admin, wanted, rights=True)
    hidden = _denied_ones(failed)
    settings, unreadable = config_entries(admin, described)
    with_offsets = _with_offsets(admin, described, settings, patience)
    problems = {name: Trouble.of(error) for name, error in ({**unreadable, **failed}).items()}
    existing = {name: replace(topic, problem=problems.get(name)) for name, topic in with_offsets.items()}
    denied = {name: _denied(description) for name, description in described.items()}
    denied |= dict.fromkeys(hidden, frozenset({*IMPLY_DESCRIBE, Operation.DESCRIBE}))
    # Topics that may not exist, and whose configuration the brokers would not show.
    unknown = sorted(wanted - described.keys() - (failed.keys() - hidden))
    unshown = {
        resource.name
        for resource, answer in (_ask_configs(admin, unknown) if unknown else {}).items()
        if isinstance(answer, KafkaError) and answer.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    }
    for name in _denied_ones(unreadable) | unshown:
        denied[name] = denied.get(name, frozenset()) | {Operation.DESCRIBE_CONFIGS}
    return ExistingTopics(existing | {name: without_description(name, problems[name]) for name in failed}, denied)


def _denied_ones(errors: Mapping[str, ReplicationError]) -> set[str]:
    return {name for name, error in errors.items() if isinstance(error, NotAuthorized)}


def _denied(description: TopicDescription) -> frozenset[Operation]:
    """The operations that the client may not do with a topic. Empty if brokers do not list them (before Kafka 2.3)."""
    allowed = description.authorized_operations
    names = {operation.name for operation in allowed} if allowed else {operation.name for operation in Operation}
    return frozenset(operation for operation in Operation if operation.name not in names)


def describe_all(admin: AdminClient, topics: Iterable[str]) -> dict[str, Topic]:
    """The same as `describe`. Raises the error of a topic that cannot be described."""
    described, failed = _describe_each(admin, topics)
    settings, unreadable = config_entries(admin, described)
    with_offsets = _with_offsets(admin, described, settings, _USUAL)
    for error in (failed | unreadable).values():
        raise error
    return with_offsets


def _with_offsets(
    admin: AdminClient,
    described: Mapping[str, TopicDescription],
    settings: Mapping[str, Mapping[str, ConfigEntry]],
    patience: offsets.Patience,
) -> dict[str, Topic]:
    """These topics with the offsets of every partition, and their configuration if it is known."""
    partition_offsets = offsets.all_three(
        admin, [TopicPartition(name, p.id) for name, d in described.items() for p in d.partitions], patience
    )
    return {
        name: Topic(
            name=name,
            topic_id=str(d.topic_id),
            partitions={p.id: partition_offsets[TopicPartition(name, p.id)] for p in d.partitions},
            replication_factor=min((len(p.replicas) for p in d.partitions), default=0),
            config=_values(settings.get(name, {})),
            own=frozenset(
                key for key, entry in settings.get(name, {}).items() if ConfigSource(entry.source) is _SET_ON_TOPIC
            ),
        )
        for name, d in described.items()
    }


def create(admin: AdminClient, wanted: ToCreate) -> None:
    """Create the topic and wait until every partition has a leader. An existing topic stays as it is."""
    name = wanted.name
    error = ask_to_create(admin, [wanted], TIMEOUT)[name]
    if error is not None and error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
        translated = translate(error, f"creating topic {name}", Asked.of(admin, topic=(Operation.CREATE, name)))
        if translated.retriable or isinstance(translated, NotAuthorized | NotAdmitted):
            raise translated
        raise Refused(
            f"cannot create the target topic {name}: {error.str()}", "create it by hand, or correct target_topics"
        )
    _await_leaders(admin, name)


def not_writable(admin: AdminClient, names: Iterable[str]) -> list[str]:
    """Those of these topics that the brokers do not let this client write, as far as they show it (KIP-430)."""
    descriptions, failed = _describe_each(admin, names, rights=True)
    hidden = _denied_ones(failed)
    writing = {AclOperation.WRITE, AclOperation.ALL}
    denied = {name for name, topic in descriptions.items() if not writing & set(topic.authorized_operations or writing)}
    return sorted(hidden | denied)


def add_partitions(admin: AdminClient, name: str, partitions: int) -> None:
    """Give the topic this number of partitions, and wait until each has a leader.

    Raises Refused, Unreachable.
    """
    try:
        admin.create_partitions([NewPartitions(name, partitions)], request_timeout=TIMEOUT)[name].result(TIMEOUT * 2)
    except KafkaException as e:
        asked = Asked.of(admin, topic=(Operation.ALTER, name))
        error = translate(e.args[0], f"adding partitions to the target topic {name}", asked)
        if e.args[0].code() == KafkaError.INVALID_PARTITIONS:  # it has them meanwhile, or more
            return
        if not isinstance(error, Unexpected):
            raise error from e
        raise Refused(
            error.what, f"add them by hand: kafka-topics.sh --alter --topic {name} --partitions {partitions}"
        ) from e
    _await_leaders(admin, name)


def _await_leaders(admin: AdminClient, name: str, timeout: float = TIMEOUT) -> None:
    """Wait until every partition has a leader. Raises Stalled, naming the last error, after ``timeout`` seconds."""
    try:
        tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(Unreachable),
            stop=tenacity.stop_after_delay(timeout),
            wait=tenacity.wait_exponential(multiplier=0.05, max=1.0),
            reraise=True,
        )(_check_leaders, admin, name)
    except Unreachable as error:
        raise Stalled(error.what, error.remedy) from error


def _check_leaders(admin: AdminClient, name: str) -> None:
    try:
        partitions = admin.list_topics(name, timeout=5.0).topics[name].partitions
    except KafkaException as e:
        raise translate(e.args[0], f"waiting for the leaders of the new topic {name}") from e
    leaderless = [number for number, partition in partitions.items() if partition.leader < 0]
    if leaderless or not partitions:
        raise NotReady(
            f"the topic {name} has no leader" + (f" for partition {leaderless[0]}" if leaderless else ""),
            "check that enough brokers run; the next run continues from here",
        )
