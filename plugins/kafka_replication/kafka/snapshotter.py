"""Takes a `Snapshot` of both clusters for one replication."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from confluent_kafka.admin import AdminClient

from kafka_replication.config import Replication
from kafka_replication.config.names import is_pattern
from kafka_replication.kafka import offsets, topics
from kafka_replication.kafka.defaults import topic_defaults
from kafka_replication.ledger.entries import POSITIONS, RECEIPTS
from kafka_replication.model.errors import PreflightFailed
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.model.times import ceil_millis
from kafka_replication.planning.snapshot import Snapshot


def take(
    replication: Replication,
    source: AdminClient,
    target: AdminClient,
    only: Collection[str] = (),
    until: datetime | None = None,
    known: Collection[TopicPartition] = (),
    others: Collection[str] = (),
) -> Snapshot:
    """Both sides of every selected topic, and the topics ``others`` of the target.

    ``known`` partitions already have a start offset: ``start_from`` is not resolved for them.

    Raises PreflightFailed if a topic named in the file does not exist and was never replicated, Unreachable.
    """
    selected = [name for name in topics.names(source) if replication.selects(name) and (not only or name in only)]
    _check_named(replication, selected, only, {at.topic for at in known})
    sources = topics.describe(source, selected)
    partitions = [TopicPartition(name, number) for name, topic in sources.items() for number in topic.partitions]
    wanted = {replication.target_topic(name) for name in selected}
    targets = topics.describe(target, {*wanted, *others, POSITIONS, RECEIPTS})
    ledger = {name: targets.pop(name) for name in (POSITIONS, RECEIPTS) if name in targets}
    created = len(ledger) < 2 or (replication.target_topics.create and wanted - targets.keys())
    return Snapshot(
        source_cluster=topics.cluster_id(source),
        target_cluster=topics.cluster_id(target),
        source=sources,
        target=targets,
        starts=_starts(replication, source, [at for at in partitions if at not in set(known)]),
        until=offsets.at_time(source, partitions, ceil_millis(until)) if until else {},
        ledger=ledger,
        defaults=topic_defaults(target) if created else None,
    )


def _check_named(
    replication: Replication, selected: Collection[str], only: Collection[str], known: Collection[str]
) -> None:
    named = {entry for entry in replication.topics.include if not is_pattern(entry)}
    wanted = set(only) if only else named
    missing = sorted(wanted - set(selected) - set(known))
    if missing:
        raise PreflightFailed(
            f"replication {replication.name}: unknown source topic{'s' if len(missing) > 1 else ''}"
            f" {', '.join(missing)}",
            "correct topics.include, create the topic, or grant Describe on it",
        )


def _starts(
    replication: Replication, source: AdminClient, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    match replication.start_from:
        case "earliest":
            return offsets.log_starts(source, partitions)
        case "latest":
            return offsets.last_stable(source, partitions)
        case moment:
            return offsets.at_time(source, partitions, ceil_millis(moment))
