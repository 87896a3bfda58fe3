"""The things that an audit compares: both sides, the ledger, and today's pipeline of the replication."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from kafka_replication.copying.pipeline import Pipeline
from kafka_replication.kafka.metadata import topics
from kafka_replication.ledger.entries import Handled
from kafka_replication.ledger.placement import Part
from kafka_replication.ledger.receipts import Receipts
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import Refused, ReplicationError
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import OffsetRange, TopicPartition, readable
from kafka_replication.planning.snapshot import Topic
from kafka_replication.runs.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Source, target and ledger. The target's ends are read first, so the ledger has an entry for all copies below
    them.
    """

    target: Mapping[str, Topic]
    ends: Mapping[TopicPartition, int]
    failures: Mapping[TopicPartition, ReplicationError]  # why the end of these target partitions is not known
    source_cluster: str
    source: Mapping[str, Topic]
    view: LedgerView
    receipts: Receipts
    pipeline: Pipeline | None  # as the replication's file and the user's functions are today

    def log(self, at: TopicPartition) -> OffsetRange | None:
        """The readable offsets of a target partition; None if it is gone or does not answer."""
        topic = self.target.get(at.topic)
        if topic is None or at not in self.ends:
            return None
        return readable(topic.offsets(at.partition).log_start, self.ends[at])

    def retried(self, key: PartitionKey) -> Iterator[tuple[Handled, Part]]:
        """The places of records that were set aside first, and copied later."""
        topic = self.target.get(key.target_topic)
        for entry in self.view[key].retries:
            if topic is not None and entry.ids.target_topic == topic.topic_id:
                yield from ((entry, part) for part in entry.parts)


def gone(at: TopicPartition) -> Refused:
    """The error of a target partition that is not there."""
    return Refused(f"{at} on the target is gone", "restore it, or reset the topic with kafka-replication reset")


def look(run: Run, keys: Collection[PartitionKey]) -> Sides:
    """Look at both sides. Raises BadInput for a transform that cannot be imported, Unreachable."""
    pipeline = run.pipeline
    target = run.clusters.target.catalogue.topics({key.target_topic for key in keys})
    positions = run.view().positions
    wanted = {
        TopicPartition(key.target_topic, number) for key in keys for number in positions[key].ends(key.source.partition)
    }
    there = [at for at in wanted if at.topic in target and at.partition in target[at.topic].partitions]
    standing = run.clusters.target.standing
    # Where others write, their transactions may stay open.
    ends, failures = standing.ends(there) if run.replication.placing.shared else standing.stable_ends(there)
    cluster, source = (
        topics.cluster_id(run.clusters.source_admin),
        topics.describe_all(run.clusters.source_admin, {key.source.topic for key in keys}),
    )
    return Sides(
        target=target,
        ends=ends,
        failures=failures,
        source_cluster=cluster,
        source=source,
        view=run.view(),
        receipts=run.clusters.ledger.receipts(dict.fromkeys(keys)),
        pipeline=pipeline,
    )
