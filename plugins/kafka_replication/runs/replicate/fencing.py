"""End transactions that earlier runs of this replication left open on the target."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from kafka_replication.model.keys import PartitionKey, opening_id, verified_id
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.runs.run import LeasedRun

log = logging.getLogger(__name__)


def fence_stale_producers(run: LeasedRun) -> None:
    """Fence producers of dead or hanging runs that have an entry of this run's target topics in an open transaction.

    Without this, the ledger could not be read until those transactions time out, after 10 minutes by default. Producers
    of other target topics are left alone: they may be at work. A run at work whose opening is fenced here repeats it. A
    producer that cannot be fenced is only logged: the copier of its partition fences it again, or fails alone.
    """
    undecided = sorted(key for key in run.clusters.ledger.undecided() if run.holds(key.target_topic))
    ids = {key.transactional_id: str(key) for key in undecided}
    if undecided:
        ids |= {opening_id(run.replication.name): "opening", verified_id(run.replication.name): "what is verified"}
    _fence(run, ids)
    _fence(run, {key.transactional_id: str(key) for key in _suspects(run) if key not in undecided})


def _suspects(run: LeasedRun) -> list[PartitionKey]:
    """The partitions that may have left records in an open transaction, of target topics with several writers.

    It would hide the records of all of them until it times out. One without an entry in the ledger is not seen there.
    """
    if run.replication.placing.sole:
        return []
    writers: dict[TopicPartition, list[PartitionKey]] = {}
    for key, position in run.view().positions.items():
        if run.holds(key.target_topic):
            for number in position.ends(key.source.partition):
                writers.setdefault(TopicPartition(key.target_topic, number), []).append(key)
    return sorted({key for at in run.clusters.target.standing.hiding(writers) for key in writers[at]})


def _fence(run: LeasedRun, ids: Mapping[str, str]) -> None:
    for what in ids.values():
        log.warning("%s: an earlier run may have left a transaction open; fencing its producer", what)
    run.clusters.target.end_sessions(ids, run.check)
