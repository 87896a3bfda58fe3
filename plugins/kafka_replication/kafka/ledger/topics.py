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
