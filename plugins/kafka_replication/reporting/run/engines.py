"""The engines of a plan or a report: which one begins with how many partitions, which one takes over, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from kafka_replication import documents
from kafka_replication.model.engine_choice import EngineChoice, Turn

MOST = 10  # turns that are named for people


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


def turn_rows(turns: Iterable[Turn]) -> list[documents.EngineTurnRow]:
    return [
        {"engine": turn.engine, "from": turn.range.from_, "until": turn.range.until, "why": turn.why} for turn in turns
    ]


def turn_lines(turns: Mapping[str, Turn]) -> list[str]:
    """A line for each turn, by the offsets that it is about."""
    lines = [f"{where} went to the engine {turn.engine}: {turn.why}" for where, turn in turns.items()]
    more = len(lines) - MOST
    return (
        [*lines[:MOST], f"{more:,} more parts of ranges went to another engine; --json names them"]
        if more > 0
        else lines
    )
