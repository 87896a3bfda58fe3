"""Finds out which requests the brokers would refuse later. Nothing is created, joined, committed or fenced."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported without saying so
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from kafka_replication.kafka import clients, consumer_pool
from kafka_replication.kafka.connect_diagnosis import translate
from kafka_replication.kafka.reading import code_of
from kafka_replication.kafka.topic_creation import ask_to_create
from kafka_replication.ledger.entries import POSITIONS
from kafka_replication.model.errors import NotAuthorized, Refused, ReplicationError
from kafka_replication.model.rights import DenyRule, Resource, Side
from kafka_replication.targets.port import ToCreate

WAIT = 0.1  # seconds between two looks at what the brokers deny


def may_describe_group(config: clients.ClientConfig, group: str, seconds: float) -> bool:
    """False if the brokers deny ``Describe`` on the group. Another error says nothing about rights.

    A consumer asks. An admin client must not: when it asks for a coordinator, and a broker is removed meanwhile,
    librdkafka 2.16 ends the whole process (assertion ``eonce->refcnt > 0``).
    """
    with suppress(_GroupDenied), consumer_pool.borrowed(config, group) as consumer:
        end = time.monotonic() + seconds
        while (remaining := end - time.monotonic()) > 0:
            try:
                consumer.committed([TopicPartition(POSITIONS, 0)], min(WAIT, remaining))
                return True
            except KafkaException as e:
                # That it must not even ask for the coordinator comes as an event, not as an answer.
                event = consumer.poll(0)
                codes = e.args[0].code(), None if event is None else code_of(event)
                if KafkaError.GROUP_AUTHORIZATION_FAILED in codes:
                    raise _GroupDenied from e  # so that this consumer is not used again
        return True
    return False


class _GroupDenied(Exception):
    """The brokers deny ``Describe`` on the group."""


_RESOURCES = {
    ResourceType.TOPIC: Resource.TOPIC,
    ResourceType.GROUP: Resource.GROUP,
    ResourceType.TRANSACTIONAL_ID: Resource.TRANSACTIONAL_ID,
    ResourceType.BROKER: Resource.CLUSTER,
}


def deny_rules(admin: AdminClient, side: Side, seconds: float) -> frozenset[DenyRule] | None:
    """The rules by which this cluster denies something. None without the right ``Describe`` on the cluster."""
    any_, deny = AclOperation.ANY, AclPermissionType.DENY
    # None is any name, any principal, any host; the stubs do not know that.
    asked: list[Any] = [ResourceType.ANY, None, ResourcePatternType.ANY, None, None, any_, deny]
    try:
        rules = admin.describe_acls(AclBindingFilter(*asked), request_timeout=seconds).result(seconds * 2)
        if not rules:  # librdkafka 2.16 drops the error if the right is missing, so the list is empty then, too
            ask = admin.describe_cluster(include_authorized_operations=True, request_timeout=seconds)
            if AclOperation.DESCRIBE not in (ask.result(seconds * 2).authorized_operations or ()):
                return None
    except (KafkaException, FutureTimeout):
        return None
    return frozenset(
        DenyRule(
            side=side,
            principal=rule.principal,
            host=rule.host,
            operation=rule.operation.name.title().replace("_", ""),
            resource=_RESOURCES[rule.restype],
            name=rule.name,
            prefixed=rule.resource_pattern_type == ResourcePatternType.PREFIXED,
        )
        for rule in rules
        if rule.restype in _RESOURCES
    )


def refusals(admin: AdminClient, topics: Iterable[ToCreate], seconds: float) -> dict[str, ReplicationError]:
    """The errors with which the brokers would not create these topics, by name (``CreateTopics`` with
    ``validate_only``).

    A topic that exists meanwhile has no error, and neither has one for which the brokers did not answer in time.
    """
    refused = dict[str, ReplicationError]()
    for name, error in ask_to_create(admin, topics, seconds, validate_only=True).items():
        if error and error.code() != KafkaError.TOPIC_ALREADY_EXISTS and not error.retriable() and error.code() > 0:
            doing = f"creating topic {name}"
            translated = translate(error, doing)
            other = Refused(f"{doing}: {error.str()}", "correct target_topics")
            refused[name] = translated if isinstance(translated, NotAuthorized) else other
    return refused
