"""Takes a `Snapshot` of both clusters for one replication.

The brokers' defaults for a topic that is created without own settings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported without saying so
    AdminClient,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from kafka_replication.config import Replication
from kafka_replication.kafka import brokers, offsets, topics
from kafka_replication.kafka.topics import answer
from kafka_replication.ledger.entries import POSITIONS, RECEIPTS
from kafka_replication.model.errors import NotAuthorized, PreflightFailed
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.model.rights import Resource, Right, Side
from kafka_replication.model.times import ceil_millis
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning.snapshot import Snapshot, Topic, TopicDefaults, without_description
from kafka_replication.planning.topic_settings import may_quarantine

# These have the same name for a broker and for a topic (Kafka documentation, "Topic Configs", server default property).
_SETTINGS = ("min.insync.replicas", "unclean.leader.election.enable")


def broker_settings(admin: AdminClient) -> Mapping[str, ConfigEntry]:
    """The configuration of one broker. Raises NotAuthorized, Unreachable."""
    doing = "reading the brokers' configuration"
    nodes = answer(admin, doing, lambda seconds: admin.describe_cluster(request_timeout=seconds)).nodes
    broker = ConfigResource(ResourceType.BROKER, str(min(node.id for node in nodes)))
    return answer(admin, doing, lambda seconds: admin.describe_configs([broker], request_timeout=seconds)[broker])


def topic_defaults(admin: AdminClient) -> TopicDefaults | None:
    """The defaults of one broker, or None if the right DescribeConfigs on the cluster is missing.

    Raises Unreachable. `CreateTopics` with ``validate_only`` would return the exact settings (KIP-525), but
    confluent-kafka drops that part of the response. So the created topic itself is checked again before anything is
    written to it.
    """
    try:
        settings = broker_settings(admin)
    except NotAuthorized:
        return None
    return TopicDefaults(
        int(str(settings["default.replication.factor"].value)),
        {name: str(settings[name].value) for name in _SETTINGS if name in settings},
    )


# Takes the snapshot of a target: of the topics to be written to, and of others.
Look = Callable[[Replication, Collection[str], Collection[str]], Snapshot]
_CORRECT = "correct topics.include, create the topic, or grant Describe on it"


def take(
    replication: Replication,
    source: AdminClient,
    target: Look,
    only: Collection[str] = (),
    until: datetime | None = None,
    known: Collection[TopicPartition] = (),
    others: Collection[str] = (),
    unresolved: Mapping[TopicPartition, datetime] = {},
) -> Snapshot:
    """Both sides of every selected topic, and the topics ``others`` of the target, of which ``target`` takes a
    snapshot. A topic or partition that does not answer has a `Trouble`.

    ``known`` partitions already have a start offset: ``start_from`` is not resolved for them. For ``unresolved`` ones
    ``latest`` means the end that they had at that time.

    Raises PreflightFailed if no selected topic exists, or if one of ``only`` does not; Unreachable if a cluster does
    not answer.
    """
    patience = offsets.Patience.within(replication.timeouts.request)
    described, sources, missing = _sources(replication, source, only, known, patience)
    readable = [TopicPartition(name, number) for name, topic in sources.items() for number in topic.readable]
    starts, unanswered = _starts(replication, source, set(readable) - set(known), unresolved, patience)
    ends, also_unanswered = offsets.at_time_each(source, readable, ceil_millis(until), patience) if until else ({}, {})
    wanted = {replication.target_name(name) for name in sources if not replication.target_problem(name)}
    on_target = target(replication, wanted, others)
    problems = defaultdict[str, dict[int, Trouble]](dict)  # of the partitions that did not answer a later question
    for partition, error in (unanswered | also_unanswered).items():
        problems[partition.topic][partition.partition] = Trouble.of(error)
    answered = {
        name: replace(topic, partitions={**topic.partitions, **problems.get(name, {})})
        for name, topic in sources.items()
    }
    return replace(
        on_target,
        source_cluster=topics.cluster_id(source),
        source=answered | missing,
        only=frozenset(only),
        starts=starts,
        until=ends,
        denied=_rights("source", described) | on_target.denied,
    )


def take_target(
    replication: Replication, target: AdminClient, wanted: Collection[str], others: Collection[str] = ()
) -> Snapshot:
    """The target only: the topics to be written to, the topics ``others``, the ledger's and the quarantine."""
    patience = offsets.Patience.within(replication.timeouts.request)
    aside = {replication.quarantine_topic} if may_quarantine(replication) else set()
    described = topics.describe(target, {*wanted, *others, *aside, POSITIONS, RECEIPTS}, patience)
    targets = dict(described.topics)
    ledger = {name: targets.pop(name) for name in (POSITIONS, RECEIPTS) if name in targets}
    quarantine = targets.pop(replication.quarantine_topic, None)
    absent = (set(wanted) if replication.target_topics.create else set()) - targets.keys()
    created = absent or len(ledger) < 2 or (aside and quarantine is None)
    return Snapshot(
        source_cluster="",
        target_cluster=topics.cluster_id(target),
        source={},
        target=targets,
        ledger=ledger,
        quarantine=quarantine,
        defaults=topic_defaults(target) if created else None,
        denied=_rights("target", described),
    )


def take_source(replication: Replication, source: AdminClient, known: Collection[TopicPartition]) -> Snapshot:
    """The source only: the selected topics. Raises PreflightFailed if none of those that the file names exists."""
    patience = offsets.Patience.within(replication.timeouts.request)
    described, sources, missing = _sources(replication, source, (), known, patience)
    return Snapshot(
        source_cluster=topics.cluster_id(source),
        target_cluster="",
        source=sources | missing,
        target={},
        denied=_rights("source", described),
    )


def _sources(
    replication: Replication,
    source: AdminClient,
    only: Collection[str],
    known: Collection[TopicPartition],
    patience: offsets.Patience,
) -> tuple[topics.ExistingTopics, dict[str, Topic], dict[str, Topic]]:
    """The source's description of the selected topics, those that exist or may exist, and those that do not."""
    # A list of all topics leaves out those that the client may not describe. So topics that the file names, or that
    # were replicated before, are requested by name: the answer distinguishes a missing topic from a missing right.
    numbers: dict[str, list[int]] = {}
    for partition in known:
        numbers.setdefault(partition.topic, []).append(partition.partition)
    names = {*candidates(replication, source), *numbers}
    wanted = {name for name in names if replication.selects(name) and (not only or name in only)}
    described = topics.describe(source, wanted, patience)
    there = {  # or may be: a topic that may not be described gets its known partitions
        name: without_description(name, topic.problem, sorted(numbers.get(name, [0])))
        if topic.problem and not topic.topic_id
        else topic
        for name, topic in described.topics.items()
    }
    # What brokers tell of the transactions that hide records, in the first partitions only: each one costs a request to
    # its leader and one to each broker.
    hiding = [
        TopicPartition(name, number) for name in there for number, log in there[name].readable.items() if log.is_hiding
    ]
    sources = dict(there)
    for at in sorted(hiding)[: brokers.MOST]:
        topic = sources[at.topic]
        log = replace(topic.offsets(at.partition), hidden_by=brokers.named(source, at))
        sources[at.topic] = replace(topic, partitions={**topic.partitions, at.partition: log})
    return described, sources, _missing(replication, sources, only, numbers)


def candidates(replication: Replication, source: AdminClient) -> set[str]:
    """The names of which the replication selects some: those in its file, and if that has patterns, all that the source
    lists. A cluster may have thousands of topics, so its list is asked for only then. Raises Unreachable.
    """
    named, entries = replication.topics.named, replication.topics.include
    return {*named, *(topics.names(source) if len(named) < len(entries) else ())}


def _rights(side: Side, described: topics.ExistingTopics) -> frozenset[Right]:
    return frozenset(
        Right(side=side, operation=operation, resource=Resource.TOPIC, name=name)
        for name, operations in described.denied.items()
        for operation in operations
    )


def _missing(
    replication: Replication, selected: Collection[str], only: Collection[str], known: Collection[str]
) -> dict[str, Topic]:
    """The topics that the file names, and that neither exist nor were ever replicated. Raises PreflightFailed."""
    named = set(replication.topics.named)
    missing = sorted((set(only) or named) - set(selected) - set(known))
    if missing and (only or not (selected or known)):
        raise PreflightFailed(
            f"replication {replication.name}: unknown source topic{'s' if len(missing) > 1 else ''}"
            f" {', '.join(missing)}",
            _CORRECT,
        )
    problem = Trouble("error", "", "the topic does not exist, or this client may not describe it", _CORRECT)
    return {name: without_description(name, problem, [0]) for name in missing}


def _starts(
    replication: Replication,
    source: AdminClient,
    partitions: Collection[TopicPartition],
    unresolved: Mapping[TopicPartition, datetime],
    patience: offsets.Patience,
) -> tuple[dict[TopicPartition, int], offsets.Failures]:
    match replication.start_from:
        case "earliest":
            return offsets.log_starts_each(source, partitions, patience)
        case "latest":
            starts, failures = offsets.last_stable_each(source, set(partitions) - unresolved.keys(), patience)
            for partition in set(partitions) & unresolved.keys():
                resolved, failed = offsets.at_time_each(
                    source, [partition], ceil_millis(unresolved[partition]), patience
                )
                starts, failures = starts | resolved, failures | failed
            return starts, failures
        case moment:
            return offsets.at_time_each(source, partitions, ceil_millis(moment), patience)
