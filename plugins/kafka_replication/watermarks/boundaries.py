"""Boundaries between data intervals. In each partition a time is resolved to an offset once, and never changes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from kafka_replication.model.errors import BadInput
from kafka_replication.model.offsets import MAX_OFFSET, TopicPartition


@dataclass(frozen=True, slots=True, order=True)
class BoundaryKey:
    """A partition of one topic. A re-created topic has another id, and so its own boundaries."""

    at: TopicPartition
    topic_id: str


def decide_boundary(resolved: int, before: int | None, after: int | None, copied: int | None = None) -> int:
    """The offset to store for a time: ``resolved``, which Kafka returns now, limited by the stored boundaries of
    earlier and later times.

    The limits are needed because a later time may have been resolved before a late record existed. It was then resolved
    to the last stable offset of that moment. For an earlier time Kafka may now return a higher offset, and the
    intervals would overlap.

    ``copied`` is the end of the offsets that were copied before this interval. If no stored earlier boundary reaches
    ``copied``, boundaries are missing. The interval then starts at ``copied`` at the latest, so that late records
    belong to this interval.
    """
    if copied is not None and (before is None or before < copied):
        resolved = min(resolved, copied)
    low, high = before or 0, MAX_OFFSET if after is None else after
    return min(max(resolved, low), high)


def check_interval(
    replication: str, start: datetime | None, end: datetime | None, now: datetime
) -> tuple[datetime, datetime]:
    """The data interval of a run, which a replication with ``progress: interval`` needs.

    Raises BadInput naming the replication.
    """
    remedy = "run it by its schedule or with `airflow backfill create`; for other ranges trigger its backfill DAG"
    if start is None or end is None:
        raise BadInput(
            f"replication {replication} copies data intervals (progress: interval), and this run has none", remedy
        )
    if start >= end:
        raise BadInput(
            f"replication {replication}: the data interval [{start.isoformat()}, {end.isoformat()}) is empty", remedy
        )
    if end > now:
        raise BadInput(
            f"replication {replication}: the data interval [{start.isoformat()}, {end.isoformat()}) has not ended yet",
            remedy,
        )
    return start, end
