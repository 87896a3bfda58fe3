"""Restart one topic in the next generation, after its source or target topic was re-created."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import replace

from kafka_replication.kafka import snapshotter, topics
from kafka_replication.ledger.account import Change
from kafka_replication.ledger.entries import Ids, Position
from kafka_replication.ledger.writing import apply
from kafka_replication.model.errors import Refused
from kafka_replication.model.offsets import PartitionKey, TopicPartition
from kafka_replication.model.trouble import raise_errors
from kafka_replication.planning import preflight
from kafka_replication.planning.partitioning_changes import refusal_of_partitions
from kafka_replication.planning.refusals import sealed
from kafka_replication.planning.snapshot import Snapshot
from kafka_replication.runs import steps
from kafka_replication.runs.run import LeasedRun
from kafka_replication.runs.target_topics import create_target
from kafka_replication.targets.start_offsets import StartOffsets, beginning

log = logging.getLogger(__name__)


def reset_topic(run: LeasedRun, topic: str, target_topic: str | None = None) -> dict[PartitionKey, Position]:
    """Reset all partitions of the topic, and return their new positions.

    Receipts and gaps of earlier generations stay in the ledger. The reset of one partition is atomic, that of the topic
    is not: after a crash, the same call resets the partitions that still have the old topic ids. Raises
    PreflightFailed, Fenced, or Refused if the target has records.
    """
    target = target_topic or run.replication.target_topic(topic)
    run.clusters.ledger.ensure(run.replication)
    steps.fence_stale_producers(run)
    snapshot = _snapshot(run, topic, target)
    ids = Ids(snapshot.source_cluster, snapshot.source[topic].topic_id, snapshot.target[target].topic_id)
    keys = [
        PartitionKey(run.replication.name, TopicPartition(topic, number), target)
        for number in sorted(snapshot.source[topic].partitions)
    ]
    run.check()
    with closing(run.opening()) as opening:
        chosen = to_reset(keys, opening.fence().positions, ids)
        for key in chosen:  # the open transaction of a dead copier would hide records on the target
            with run.fenced(key):
                pass
        _refuse_occupied(run, opening, chosen)
        generations = _generations(run, chosen)
        done = {key: _reset(run, opening, key, snapshot.starts[key.source], ids, generations[key]) for key in chosen}
    steps.advance(run, chosen)
    return done


def _snapshot(run: LeasedRun, topic: str, target: str) -> Snapshot:
    """A snapshot of the topic, with the start offsets of a new topic. Creates the target topic if it is missing."""
    while True:
        snapshot = replace(
            snapshotter.take(run.replication, run.clusters.source_admin, run.clusters.target.catalogue.look, [topic]),
            logins=run.clusters.logins,
            known=True,
        )
        raise_errors(preflight.check(run.replication, snapshot))
        snapshot = replace(snapshot, target=run.clusters.target.catalogue.topics([target]))
        source, existing = snapshot.source[topic], snapshot.target.get(target)
        if existing is None:
            if not run.replication.target_topics.create:
                raise Refused(
                    f"the target topic {target} does not exist and target_topics.create is false", "create it"
                )
            create_target(run, snapshot, topic, target)
        else:
            for number in sorted(source.partitions):
                key = PartitionKey(run.replication.name, TopicPartition(topic, number), target)
                if refusal := refusal_of_partitions(run.replication.placing, key, source, existing.partitions):
                    raise Refused(refusal.what, refusal.remedy)
            return snapshot


def to_reset(
    keys: Collection[PartitionKey], positions: Mapping[PartitionKey, Position], ids: Ids
) -> list[PartitionKey]:
    """The partitions to reset: all ``keys``. If some positions have older topic ids, only those and the ones that were
    never opened: the others were reset already.
    """
    stale = {key for key in keys if key in positions and positions[key].ids != ids}
    return [key for key in keys if not stale or key in stale or key not in positions]


def _refuse_occupied(run: LeasedRun, opening: StartOffsets, keys: Collection[PartitionKey]) -> None:
    if run.replication.on_existing_target != "refuse":
        return
    for key, (at, offset) in sorted(opening.records.occupied(keys).items()):
        raise Refused(
            f"{key.source}: {at} on the target still holds records (the first at offset {offset}), which would"
            " be copied twice",
            f"re-create {key.target_topic}, or set on_existing_target: append to write after them",
        )


def _generations(run: LeasedRun, keys: Collection[PartitionKey]) -> dict[PartitionKey, int]:
    """For each partition the first generation that neither the ledger nor the store has used."""
    view, stored = run.view(), run.store.watermarks(run.replication.name)
    receipts = run.clusters.ledger.receipts(dict.fromkeys(keys))

    def last(key: PartitionKey) -> int:
        position, mark = view.positions.get(key), stored.get(key)
        used = [position.generation if position else 0, mark.generation if mark else 0]
        used += [gap.generation for gap in view.gaps.get(key, ())]
        used += [entry.generation for entry in view.handled.get(key, ())]
        return max(*used, *receipts.generations(key))

    return {key: last(key) + 1 for key in keys}


def _reset(run: LeasedRun, opening: StartOffsets, key: PartitionKey, start: int, ids: Ids, generation: int) -> Position:
    """Reset with the partition's own transactional id, so that no copier of an earlier generation can commit."""
    with run.fenced(key) as session:
        if (before := session.position()) is not None and before.sealed:
            refused = sealed(key, before.sealed)
            raise Refused(refused.what, refused.remedy)
        # The ends of other clients' records, before the check: later records are not ours, and the next run reports
        # them. Partitions in which they may follow ours are left out.
        ends, failures = ({}, {}) if run.replication.placing.shared else opening.records.ends([key])
        for error in failures.values():
            raise error
        _refuse_occupied(run, opening, [key])
        position = Position(
            generation=generation,
            ids=ids,
            start=start,
            next_offset=start,
            receipts_from=run.clusters.ledger.receipt_ends()[key.ledger_partition],
            delivery=run.replication.delivery,
        )
        position = beginning(position, key, run.replication.placing, ends.get(key, {}))
        topics.check_id(run.clusters.source_admin, key.source.topic, ids.source_topic, "source")
        session.check_ids(ids)
        apply(session.ledger, session.transaction, [Change(key=key, write=(position,))])
    log.info("%s: generation %d starts at offset %d", key, generation, start)
    return position
