"""Boundaries between data intervals: each time is one offset for a partition, for ever, whoever asks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from kafka_replication.model.errors import BadInput
from kafka_replication.model.offsets import MAX_OFFSET, TopicPartition


@dataclass(frozen=True, slots=True, order=True)
class BoundaryKey:
    """A partition of one topic; a topic that was re-created (another id) has boundaries of its own."""

    at: TopicPartition
    topic_id: str


def decide_boundary(found: int, before: int | None, after: int | None, copied: int | None = None) -> int:
    """The offset to store for a time: what Kafka says now, kept between the stored boundaries of earlier and of later
    times.

    A later time's boundary may have been resolved before any such record existed (to the last stable offset then): what
    Kafka says of an earlier time since then may lie beyond it, and the intervals would overlap.

    ``copied`` is where the offsets that were copied before this interval end. If no stored earlier boundary reaches
    ``copied``, boundaries were lost. The interval then starts at ``copied`` at the latest, so that late records belong
    to this interval.
    """
    if copied is not None and (before is None or before < copied):
        found = min(found, copied)
    low, high = before or 0, MAX_OFFSET if after is None else after
    return min(max(found, low), high)


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
