"""Reads what registries have in the topic `_schemas` of both sides, and the schema ids of records at the source."""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import closing
from typing import Any

from kafka_replication.kafka import offsets, topics
from kafka_replication.kafka.cursor import Cursor
from kafka_replication.kafka.reading import offset_of
from kafka_replication.kafka.sampling import last_records
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.choices import KAFKA
from kafka_replication.model.errors import ReplicationError, Unreachable
from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition, consumer_group
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning import schemas
from kafka_replication.planning.schemas import TOPIC, Version
from kafka_replication.planning.snapshot import Snapshot, Topic
from kafka_replication.runs.run import Run

log = logging.getLogger(__name__)
LAST = 50  # offsets at the end of each partition of which `check` looks at the ids
READING = 10.0  # seconds for all of them together


def other_ids(run: Run, snapshot: Snapshot, view: LedgerView) -> list[Trouble]:
    """An error that stops the run if the registry of the target has ids that are not the source's, or if that cannot be
    found out. Nothing is read if the file does not select `_schemas`, or if there is none on the target.
    """
    replication = run.replication
    if replication.target.type != KAFKA or not replication.selects(TOPIC) or replication.target_problem(TOPIC):
        return []
    key = PartitionKey(replication.name, TopicPartition(TOPIC, 0), replication.target_name(TOPIC))
    try:
        source, target = snapshot.source.get(TOPIC), snapshot.target.get(key.target_topic)
        if snapshot.only and source is None:  # a run of other topics
            source = topics.describe_all(run.clusters.source_admin, [TOPIC]).get(TOPIC)
            target = run.clusters.target.catalogue.topics([key.target_topic]).get(key.target_topic)
        position = view.positions.get(key)
        if source is None or target is None or (position is not None and position.sealed):
            return []
        known = position is not None and position.ids.target_topic == target.topic_id
        ours = position.ends(0).get(0, 0) if position and known and not replication.placing.shared else 0
        there = _log(run, run.clusters.target_connection, target)
        if not there:
            return []
        here = _log(run, run.clusters.source, source)
        texts = schemas.other_ids(here, there, position=position.next_offset if position else 0, ours=ours)
    except ReplicationError as error:
        return [Trouble.of(error, f"comparing {TOPIC} with {key.target_topic} on the target")]
    return [schemas.refusal(f"{TOPIC} -> {key.target_topic}", texts)] if texts else []


def _log(run: Run, config: dict[str, Any], topic: Topic) -> list[Version]:
    """The whole log as it is now; only its first partition, because a registry has one. Raises Unreachable, Stalled."""
    if topic.problem is not None:
        raise Unreachable(topic.problem.what, topic.problem.remedy)
    there, group = topic.offsets(0).readable, consumer_group(run.replication.name)
    at, stall = TopicPartition(topic.name, 0), run.replication.copying.stall_timeout
    with closing(Cursor(config, group, at, stall)) as cursor:
        read = (schemas.version_of(offset_of(one), one.key(), one.value()) for one in cursor.read(there))
        return [version for version in read if version is not None]


def unknown(run: Run, partitions: Collection[TopicPartition]) -> list[Trouble]:
    """Warnings about the last records of these source partitions whose schema ids neither the registry of the target
    has, nor that of the source if the file copies it. What cannot be found out is not said.
    """
    replication, clusters = run.replication, run.clusters
    if replication.target.type != KAFKA:
        return []
    selected = replication.selects(TOPIC)
    name = replication.target_name(TOPIC) if selected else TOPIC
    try:
        source = topics.describe_all(clusters.source_admin, [TOPIC]).get(TOPIC) if selected else None
        target = clusters.target.catalogue.topics([name]).get(name)
        if source is None and target is None:
            return []
        versions = _log(run, clusters.source, source) if source else []
        versions += _log(run, clusters.target_connection, target) if target else []
        known = {id_ for _, id_ in schemas.ids(versions)}
        patience = offsets.Patience.within(run.deadline.within(READING))
        wanted = {at for at in partitions if at.topic != TOPIC}
        logs = offsets.readable_logs(clusters.source_admin, wanted, patience)
        ends = {at: OffsetRange(max(log_.from_, log_.until - LAST), log_.until) for at, log_ in logs.items()}
        sampled = last_records(clusters.source, consumer_group(replication.name), ends, run.deadline.within(READING))
        where = f"{name} on the target" + (f" or {TOPIC} at the source" if source else "")
        return schemas.unknown(sampled, known, where)
    except ReplicationError as error:
        log.debug("%s: schema ids were not looked at: %s", replication.name, error)
        return []
