"""The engines of a plan or a report: which one begins with how many partitions, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kafka_replication import documents
from kafka_replication.model.engine_choice import EngineChoice


def engine_rows(choices: Iterable[EngineChoice | None]) -> list[documents.EngineRow]:
    """A row for each engine and reason, the most frequent one first."""
    counted = Counter(choice for choice in choices if choice is not None)
    return [
        {"engine": choice.engine, "why": choice.why, "partitions": count} for choice, count in counted.most_common()
    ]


def engine_lines(rows: Iterable[documents.EngineRow], done: str = "copied") -> list[str]:
    """The same for people."""
    return [
        f"{done} by the {row['engine']} engine: {row['partitions']:,} partition{'s' * (row['partitions'] != 1)}"
        f" ({row['why']})"
        for row in rows
    ]
