"""Creates the ledger's two topics with the required settings, and refuses topics with other settings.

Finds out if the ledger takes entries now, as far as the brokers' descriptions of its topics show. Writes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported without saying so
    AclOperation,
    AdminClient,
    TopicDescription,
)

from kafka_replication.config import Replication
from kafka_replication.kafka import topics
from kafka_replication.kafka.snapshotter import topic_defaults
from kafka_replication.ledger.entries import POSITIONS, RECEIPTS
from kafka_replication.model.errors import NotAuthorized, Refused, ReplicationError, Unreachable
from kafka_replication.model.offsets import LEDGER_PARTITIONS
from kafka_replication.model.rights import ClusterName, Operation, Resource, Right
from kafka_replication.planning.ledger_topics import POLICIES, created


def create_missing(admin: AdminClient, replication: Replication) -> None:
    """Create the topics that are missing, and check both.

    Receipts are created first: positions without receipts mean that the receipts were deleted.
    Raises Refused.
    """
    missing = [name for name in (RECEIPTS, POSITIONS) if name not in existing(admin)]
    defaults = topic_defaults(admin) if missing else None
    for name in missing:
        factor, config = created(name, replication, defaults)
        topics.create(admin, name, LEDGER_PARTITIONS, factor, config)
    if missing:
        existing(admin)


def existing(admin: AdminClient) -> Collection[str]:
    """The ledger topics that exist. Raises Refused if one has wrong settings: with another cleanup policy entries would
    be deleted, and with another number of partitions they would be searched for in the wrong partition.
    """
    there = topics.states(admin, [POSITIONS, RECEIPTS])
    settings, unreadable = topics.configs(admin, there)
    for error in unreadable.values():
        raise error
    if POSITIONS in there and RECEIPTS not in there:
        raise Refused(
            f"the ledger topic {RECEIPTS} is gone from the target, while {POSITIONS} is there: the audit trail was"
            " deleted",
            f"restore it; or create it empty (cleanup.policy=compact,delete, {LEDGER_PARTITIONS} partitions); ranges"
            " that are not verified yet can then never be verified",
        )
    for name, topic in there.items():
        wrong = list(_wrong(name, len(topic.partitions), settings[name]))
        if wrong:
            raise Refused(
                f"the ledger topic {name} on the target has {'; '.join(wrong)}",
                "set it to that value, or restore the topic",
            )
    return there


def _wrong(name: str, partitions: int, config: Mapping[str, str]) -> Iterator[str]:
    policy, unclean = config.get("cleanup.policy"), config.get("unclean.leader.election.enable")
    if policy not in POLICIES[name]:
        yield f"cleanup.policy={policy}, not {POLICIES[name][0]}"
    if unclean != "false":
        yield f"unclean.leader.election.enable={unclean}, not false"
    if partitions != LEDGER_PARTITIONS:
        yield f"{partitions} partitions, not {LEDGER_PARTITIONS}"


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
