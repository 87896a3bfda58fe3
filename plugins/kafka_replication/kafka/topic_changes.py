"""Changes settings of topics. One that the brokers refuse leaves the others as they are wanted."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported without saying so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from kafka_replication.kafka.connect_diagnosis import Asked, translate
from kafka_replication.kafka.topics import TIMEOUT
from kafka_replication.model.errors import NotAdmitted, NotAuthorized, Refused, ReplicationError
from kafka_replication.model.rights import Operation

Changes = Mapping[str, str | None]  # by the name of the setting; None: back to the default of the brokers


def change(admin: AdminClient, wanted: Mapping[str, Changes]) -> dict[tuple[str, str], ReplicationError]:
    """Change these settings of each topic (KIP-339), and return the errors by topic and setting.

    One dry run of all topics, one more for each setting of a topic that it refuses, and one request that changes.
    """
    refused = dict[tuple[str, str], ReplicationError]()
    for topic, error in _sent(admin, wanted, validate_only=True).items():
        names = wanted[topic]
        alone = {}
        if len(names) > 1 and not isinstance(error, NotAuthorized):
            each = {name: _sent(admin, {topic: {name: value}}, validate_only=True) for name, value in names.items()}
            alone = {(topic, name): errors[topic] for name, errors in each.items() if errors}
        refused |= alone or {(topic, name): error for name in names}
    allowed = {
        topic: {name: value for name, value in names.items() if (topic, name) not in refused}
        for topic, names in wanted.items()
    }
    allowed = {topic: names for topic, names in allowed.items() if names}
    for topic, error in _sent(admin, allowed, validate_only=False).items():
        refused |= {(topic, name): error for name in allowed[topic]}
    return refused


def _sent(admin: AdminClient, wanted: Mapping[str, Changes], *, validate_only: bool) -> dict[str, ReplicationError]:
    """The errors by topic. The brokers change a topic with all of its settings, or not at all."""
    resources = [
        ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[_entry(*one) for one in names.items()])
        for topic, names in wanted.items()
    ]
    answers = (
        admin.incremental_alter_configs(resources, validate_only=validate_only, request_timeout=TIMEOUT)
        if resources
        else {}
    )
    errors = dict[str, ReplicationError]()
    for resource, answer in answers.items():
        try:
            answer.result(TIMEOUT * 2)
        except KafkaException as e:
            errors[resource.name] = _translated(admin, resource.name, e.args[0])
    return errors


def _entry(name: str, value: str | None) -> ConfigEntry:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    return ConfigEntry(name, value, incremental_operation=operation)


def _translated(admin: AdminClient, topic: str, error: KafkaError) -> ReplicationError:
    doing = f"changing settings of topic {topic}"
    translated = translate(error, doing, Asked.of(admin, topic=(Operation.ALTER_CONFIGS, topic)))
    if translated.retriable or isinstance(translated, NotAuthorized | NotAdmitted):
        return translated
    return Refused(
        f"{doing}: {error.str()}", "correct target_topics.config, or name the setting in target_topics.follow_except"
    )
