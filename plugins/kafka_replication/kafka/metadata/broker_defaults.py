"""The brokers' defaults for a topic that is created without own settings."""

from __future__ import annotations

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported without saying so
    AdminClient,
    ConfigResource,
    ResourceType,
)

from kafka_replication.kafka.metadata.topics import answer
from kafka_replication.model.errors import NotAuthorized
from kafka_replication.planning.snapshot import TopicDefaults

# These have the same name for a broker and for a topic (Kafka documentation, "Topic Configs", server default property).
_SETTINGS = ("min.insync.replicas", "unclean.leader.election.enable")


def topic_defaults(admin: AdminClient) -> TopicDefaults | None:
    """The defaults of one broker, or None if the right DescribeConfigs on the cluster is missing.

    Raises Unreachable. `CreateTopics` with ``validate_only`` would return the exact settings (KIP-525), but
    confluent-kafka drops that part of the response. So the created topic itself is checked again before anything is
    written to it.
    """
    doing = "reading the brokers' configuration"
    try:
        nodes = answer(admin, doing, lambda seconds: admin.describe_cluster(request_timeout=seconds)).nodes
        broker = ConfigResource(ResourceType.BROKER, str(min(node.id for node in nodes)))
        settings = answer(
            admin, doing, lambda seconds: admin.describe_configs([broker], request_timeout=seconds)[broker]
        )
    except NotAuthorized:
        return None
    return TopicDefaults(
        int(settings["default.replication.factor"].value),
        {name: str(settings[name].value) for name in _SETTINGS if name in settings},
    )
