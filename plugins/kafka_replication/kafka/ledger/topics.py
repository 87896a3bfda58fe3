"""Creates the ledger's two topics with the required settings, and refuses topics with other settings."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from confluent_kafka.admin import AdminClient

from kafka_replication.config import Replication
from kafka_replication.kafka.metadata import topics
from kafka_replication.kafka.metadata.broker_defaults import topic_defaults
from kafka_replication.ledger.entries import POSITIONS, RECEIPTS
from kafka_replication.model.errors import Refused
from kafka_replication.model.keys import LEDGER_PARTITIONS
from kafka_replication.planning.topics.ledger_topics import POLICIES, created


def exist(admin: AdminClient) -> bool:
    """True if both topics exist. Raises Refused if one has wrong settings."""
    return len(_existing(admin)) == 2


def create_missing(admin: AdminClient, replication: Replication) -> None:
    """Create the topics that are missing, and check both.

    Receipts are created first: positions without receipts mean that the receipts were deleted.
    Raises Refused.
    """
    missing = [name for name in (RECEIPTS, POSITIONS) if name not in _existing(admin)]
    defaults = topic_defaults(admin) if missing else None
    for name in missing:
        factor, config = created(name, replication, defaults)
        topics.create(admin, name, LEDGER_PARTITIONS, factor, config)
    if missing:
        _existing(admin)


def _existing(admin: AdminClient) -> Collection[str]:
    """The ledger topics that exist, checked. With another cleanup policy entries would be deleted. With another number
    of partitions they would be searched for in the wrong partition.
    """
    existing = topics.states(admin, [POSITIONS, RECEIPTS])
    settings, unreadable = topics.configs(admin, existing)
    for error in unreadable.values():
        raise error
    if POSITIONS in existing and RECEIPTS not in existing:
        raise Refused(
            f"the ledger topic {RECEIPTS} is gone from the target, while {POSITIONS} is there: the audit trail was"
            " deleted",
            f"restore it; or create it empty (cleanup.policy=compact,delete, {LEDGER_PARTITIONS} partitions); ranges"
            " that are not verified yet can then never be verified",
        )
    for name, topic in existing.items():
        wrong = list(_wrong(name, len(topic.partitions), settings[name]))
        if wrong:
            raise Refused(
                f"the ledger topic {name} on the target has {'; '.join(wrong)}",
                "set it to that value, or restore the topic",
            )
    return existing


def _wrong(name: str, partitions: int, config: Mapping[str, str]) -> Iterator[str]:
    policy, unclean = config.get("cleanup.policy"), config.get("unclean.leader.election.enable")
    if policy not in POLICIES[name]:
        yield f"cleanup.policy={policy}, not {POLICIES[name][0]}"
    if unclean != "false":
        yield f"unclean.leader.election.enable={unclean}, not false"
    if partitions != LEDGER_PARTITIONS:
        yield f"{partitions} partitions, not {LEDGER_PARTITIONS}"
