"""Asks the source for what `planning.retention.foresight` judges: which waiting records retention will drop soon, and
how old they are. Where nothing waits, or no topic has a retention, nothing is asked.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence

from kafka_replication.kafka.metadata import offsets
from kafka_replication.kafka.read.record_times import first_times
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.keys import PartitionKey, consumer_group
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.planning.findings import Finding
from kafka_replication.planning.plan import Plan
from kafka_replication.planning.retention import foresight
from kafka_replication.planning.retention.foresight import SourceLoss, TargetLoss, Waiting
from kafka_replication.planning.snapshot import Snapshot
from kafka_replication.runs.run import Run

log = logging.getLogger(__name__)
READING = 10.0  # seconds for the timestamps of all partitions together

Offsets = Mapping[TopicPartition, int]


def warnings(run: Run, plan: Plan, snapshot: Snapshot, view: LedgerView, *, live: bool = True) -> list[Finding]:
    """Warnings about records that are to be copied: the source will drop them before that, or the target soon after.

    What cannot be found out is not said. A backfill is not ``live``: only its copies are looked at.
    """
    try:
        found, now = foresight.waiting(run.replication, plan, snapshot, view), _now()
        young = _young_at_source(run, found, now)
        source = _source_losses(run, found, young, now) if live else []
        return list(foresight.findings(source, _target_losses(run, found, young, now)))
    except ReplicationError as error:
        log.debug("%s: what retention will drop was not found out: %s", run.replication.name, error)
        return []


def source_losses(run: Run, found: Sequence[Waiting]) -> Mapping[PartitionKey, SourceLoss]:
    """The partitions of which the source will soon drop records that are not copied. Raises Unreachable."""
    now = _now()
    return {loss.key: loss for loss in _source_losses(run, found, _young_at_source(run, found, now), now)}


def _now() -> int:
    return int(time.time() * 1000)


def _young_at_source(run: Run, found: Iterable[Waiting], now: int) -> Offsets:
    limits = {one.key.source: one.source_limit(now) for one in found}
    return _young(run, {at: limit for at, limit in limits.items() if limit is not None})


def _young(run: Run, limits: Offsets) -> dict[TopicPartition, int]:
    """For each partition that answers the first offset with a timestamp from its limit on, or else its end.

    All partitions with one limit are one request.
    """
    found, asked = dict[TopicPartition, int](), dict[int, list[TopicPartition]]()
    for at, limit in limits.items():
        asked.setdefault(limit, []).append(at)
    patience = offsets.Patience.within(run.deadline.within(run.replication.timeouts.request))
    for limit, partitions in asked.items():
        answers, _ = offsets.at_time_each(run.clusters.source_admin, partitions, limit, patience)
        found |= answers
    return found


def _times(run: Run, first: Offsets) -> Mapping[TopicPartition, int | None]:
    if not first:
        return {}
    seconds = run.deadline.within(READING)
    return first_times(run.clusters.source, consumer_group(run.replication.name), first, seconds)


def _source_losses(run: Run, found: Iterable[Waiting], young: Offsets, now: int) -> list[SourceLoss]:
    near = [one for one in found if one.left and young.get(one.key.source, 0) > one.first]
    times = _times(run, {one.key.source: one.first for one in near})
    losses = (foresight.source_loss(one, oldest=times.get(one.key.source), now=now) for one in near)
    return [loss for loss in losses if loss is not None]


def _target_losses(run: Run, found: Iterable[Waiting], young_at_source: Offsets, now: int) -> list[TargetLoss]:
    to_copy = {one.key.source: one for one in found if one.to_copy}
    limits = {at: one.target_limit(now, young_at_source.get(at)) for at, one in to_copy.items()}
    young = _young(run, {at: limit for at, limit in limits.items() if limit is not None})
    old = {at: one for at, one in to_copy.items() if young.get(at, 0) > one.first_to_copy}
    times = _times(run, {at: one.first_to_copy for at, one in old.items()})
    losses = (foresight.target_loss(one, oldest=times.get(at), young=young[at]) for at, one in old.items())
    return [loss for loss in losses if loss is not None]
