"""The status of every partition of a replication: the ledger, both clusters and the store, read once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from kafka_replication.kafka.metadata import topics
from kafka_replication.kafka.read.record_times import first_times
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import NotAdmitted, Unreachable
from kafka_replication.model.keys import consumer_group
from kafka_replication.planning.live import plan
from kafka_replication.planning.retention import foresight
from kafka_replication.planning.snapshot import Problem, Snapshot
from kafka_replication.reporting import status as reporting
from kafka_replication.reporting.status import PartitionStatus
from kafka_replication.runs.plan import foreseeing
from kafka_replication.runs.plan.previewing import without_occupied
from kafka_replication.runs.run import Run

READING = 10.0  # seconds for the timestamps of all partitions together


def standing(run: Run, take: Callable[[Run, LedgerView], Snapshot] = Run.snapshot) -> list[PartitionStatus]:
    """One row for each partition. ``take`` takes the snapshot of both clusters.

    Only for partitions that are behind it reads one record of the source, to see how old that is, and asks how many are
    near the end of their retention; and one of the target for those that were not opened. Raises Unreachable, BadInput,
    Refused.
    """
    view = run.view()
    snapshot = take(run, view)
    planned = plan(run.replication, snapshot, view, run.watermarks(view))
    losses = foreseeing.source_losses(run, foresight.waiting(run.replication, planned, snapshot, view))
    rows = reporting.status(without_occupied(run, planned, snapshot, view), snapshot, view, losses)
    behind = reporting.behind(rows)
    times = (
        first_times(run.clusters.source, consumer_group(run.replication.name), behind, run.deadline.within(READING))
        if behind
        else {}
    )
    return reporting.with_times(rows, times, datetime.now(UTC))


def without_target(run: Run, problem: Problem) -> list[PartitionStatus]:
    """The status by the store and, if it answers, the source, while the target does not answer because of ``problem``.

    One row for each watermark; none if the store has none.
    """
    watermarks = run.store.watermarks(run.replication.name)
    try:
        described = topics.describe(run.clusters.source_admin, {key.source.topic for key in watermarks})
        source = described.topics
        losses = foreseeing.source_losses(run, list(foresight.unverified(run.replication, watermarks.values(), source)))
    except (Unreachable, NotAdmitted):
        source, losses = {}, {}
    return [
        reporting.from_watermark(watermark, source.get(key.source.topic), problem, losses.get(key))
        for key, watermark in sorted(watermarks.items())
    ]
