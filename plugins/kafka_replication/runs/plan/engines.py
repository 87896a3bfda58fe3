"""Adds to a plan the engine that begins with each range, and the reason."""

from __future__ import annotations

from dataclasses import replace

from kafka_replication.kafka.client.login import unsupported
from kafka_replication.model import combinations
from kafka_replication.model.engine_choice import chosen
from kafka_replication.planning.plan import PartitionPlan, Plan
from kafka_replication.planning.snapshot import Snapshot
from kafka_replication.planning.topics.created_topics import created_config
from kafka_replication.runs.run import Run


def with_engines(run: Run, planned: Plan, snapshot: Snapshot) -> Plan:
    """The plan with the engine of each range. Asks no cluster: a worker asks again, and knows what has changed."""
    if not planned.to_copy:
        return planned
    general = combinations.why_not_batches(run.replication.chosen) or unsupported(run.clusters.source)
    reasons = {} if general else _reasons(run, planned, snapshot)

    def with_engine(one: PartitionPlan) -> PartitionPlan:
        if one.copy is None:
            return one
        why_not = general or reasons[one.key.target_topic]
        engine, why = chosen(run.replication.copying.engine, one.copy.span, why_not)
        return replace(one, engine=engine, engine_why=why)

    return replace(planned, partitions=tuple(map(with_engine, planned.partitions)))


def _reasons(run: Run, planned: Plan, snapshot: Snapshot) -> dict[str, str | None]:
    """For each target topic, the reason why it takes no whole batches; None if it does."""
    sink, found = run.clusters.target.sink, dict[str, str | None]()
    for key in (one.key for one in planned.to_copy):
        if key.target_topic not in found:
            topic, source = snapshot.target.get(key.target_topic), snapshot.source.get(key.source.topic)
            made = created_config(source.config if source else {}, run.replication.target_topics)
            found[key.target_topic] = sink.why_not_batches(key.target_topic, topic.config if topic else made)
    return found
