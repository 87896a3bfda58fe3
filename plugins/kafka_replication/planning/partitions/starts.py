"""Stores the starts of partitions that could not be opened at the first opening.

The first run resolves `start_from` for every partition. If one cannot be opened (its target has records, its leader is
away), its start must not change because of that: the ledger stores its `Start`, and a later run opens it there.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from kafka_replication.config import Replication
from kafka_replication.config.values.time import parse_time
from kafka_replication.ledger.entries import Start
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.planning.plan import PartitionPlan, State
from kafka_replication.planning.snapshot import Problem, Snapshot


def starts_to_write(
    replication: Replication,
    snapshot: Snapshot,
    own_entries: LedgerView,
    refused: tuple[PartitionPlan, ...],
    time: str,
) -> dict[PartitionKey, Start]:
    """The starts of the ``refused`` partitions of the first opening that the ledger does not have yet.

    ``own_entries`` are those for the replication's own target topics, ``time`` is now.
    """
    starts = {}
    for key in (planned.key for planned in refused if planned.state is not State.LEDGER_LOST):
        before, source = own_entries.starts.get(key), snapshot.source.get(key.source.topic)
        if key in own_entries.positions or source is None or not source.topic_id:
            continue
        if replication.target_problem(key.source.topic):
            continue  # a legal name will be another key
        if own_entries.begun and not is_for(before, snapshot, key):
            continue  # it appeared later
        stays = before is not None and is_valid(replication, snapshot, before, key)
        start = Start(
            source_cluster=snapshot.source_cluster,
            source_topic=source.topic_id,
            start_from=start_text(replication),
            offset=start_of(replication, snapshot, before, key),
            time=before.time if before and stays else time,
        )
        if before is None or start != replace(before, extra={}):
            starts[key] = start
    return starts


def start_of(replication: Replication, snapshot: Snapshot, before: Start | None, key: PartitionKey) -> int | None:
    """The start of a partition of the first opening: the offset that was stored then, else that of `start_from` now.

    None if it is not known, because the partition does not answer.
    """
    if before is not None and before.offset is not None and is_valid(replication, snapshot, before, key):
        return before.offset
    offsets = snapshot.source[key.source.topic].partitions[key.source.partition]
    return None if isinstance(offsets, Problem) else snapshot.starts.get(key.source, offsets.log_start)


def unresolved(replication: Replication, own_entries: LedgerView) -> dict[TopicPartition, datetime]:
    """The partitions that did not answer at the first opening, and its time: `latest` means their end at that time."""
    return {
        key.source: parse_time(start.time)
        for key, start in own_entries.starts.items()
        if start.offset is None and start.start_from == start_text(replication)
    }


def is_for(start: Start | None, snapshot: Snapshot, key: PartitionKey) -> bool:
    """True if a start was stored for this source topic, and not for an older one of the same name."""
    ids = (snapshot.source_cluster, snapshot.source[key.source.topic].topic_id)
    return start is not None and (start.source_cluster, start.source_topic) == ids


def is_valid(replication: Replication, snapshot: Snapshot, start: Start, key: PartitionKey) -> bool:
    """True if the stored start is for this source topic, and for the present `start_from` of the replication file."""
    return is_for(start, snapshot, key) and start.start_from == start_text(replication)


def start_text(replication: Replication) -> str:
    """`start_from` in the form of a ledger entry."""
    start = replication.start_from
    return start if isinstance(start, str) else start.isoformat()
