"""Finds out if the ledger takes entries now, as far as the brokers' descriptions of its topics show. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported without saying so
    AclOperation,
    AdminClient,
    TopicDescription,
)

from kafka_replication.kafka.metadata import topics
from kafka_replication.ledger.entries import POSITIONS, RECEIPTS
from kafka_replication.model.errors import NotAuthorized, ReplicationError, Unreachable
from kafka_replication.model.rights import ClusterName, Operation, Resource, Right


def obstacle(admin: AdminClient, cluster: ClusterName) -> ReplicationError | None:
    """NotAuthorized if a right is missing, Unreachable if too few replicas are in sync, None if nothing is known.

    Raises Unreachable if the topics cannot be described.
    """
    described = topics.descriptions(admin, [POSITIONS, RECEIPTS], rights=True)
    settings, _ = topics.configs(admin, described)  # without the right to read them, one replica in sync is enough
    for name, topic in described.items():
        operations = topic.authorized_operations or [AclOperation.ALL]  # None: the brokers do not say
        if not {AclOperation.WRITE, AclOperation.ALL} & set(operations):
            missing = Right(side="target", operation=Operation.WRITE, resource=Resource.TOPIC, name=name)
            return NotAuthorized.of(missing, cluster, doing="the ledger cannot be written")
        wanted = int(settings.get(name, {}).get("min.insync.replicas", 1))
        if short := list(_short(topic, wanted)):
            return Unreachable(
                f"the ledger topic {name} takes no records: {'; '.join(short[:3])}"
                + (f"; and {len(short) - 3} other partitions" if len(short) > 3 else ""),
                "start the brokers that are down, look for a full disk; or correct min.insync.replicas of the topic",
            )
    return None


def _short(topic: TopicDescription, wanted: int) -> Iterator[str]:
    """The partitions with fewer replicas in sync than a producer with acks=all needs. One without a leader cannot even
    be read, which `KafkaLedger.view` says. Since KIP-966 brokers never ask for more replicas than there are.
    """
    for partition in topic.partitions:
        if len(partition.isr) < min(wanted, len(partition.replicas)):
            in_sync = f"{len(partition.isr)} replica{'s' if len(partition.isr) != 1 else ''} in sync"
            yield f"partition {partition.id} has {in_sync}, and min.insync.replicas is {wanted}"
