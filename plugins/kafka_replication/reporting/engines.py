"""The engines of a plan: which one begins with how many ranges, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kafka_replication import documents
from kafka_replication.planning.plan import PartitionPlan


def engine_rows(partitions: Iterable[PartitionPlan]) -> list[documents.EngineRow]:
    """A row for each engine and reason, the most frequent one first."""
    counted = Counter(planned.engine for planned in partitions if planned.engine is not None)
    return [
        {"engine": choice.engine, "why": choice.why, "partitions": count} for choice, count in counted.most_common()
    ]


def engine_lines(rows: Iterable[documents.EngineRow]) -> list[str]:
    """The same for people."""
    return [
        f"copied by the {row['engine']} engine: {row['partitions']:,} partition{'s' * (row['partitions'] != 1)}"
        f" ({row['why']})"
        for row in rows
    ]
