"""The engines of a plan or a report: which one begins with how many partitions, which one takes over, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kafka_replication.documents import From, PartitionRow
from kafka_replication.model.engine_choice import EngineChoice, Turn
from kafka_replication.model.offsets import OffsetRange

MOST = 10  # turns that are named for people


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRow:
    """The engine that begins with the ranges of so many partitions, and the reason."""

    engine: str
    why: str
    partitions: int

    def line(self, done: str = "copied") -> str:
        """The same for people."""
        partitions = f"{self.partitions:,} partition{'s' * (self.partitions != 1)}"
        return f"{done} by the {self.engine} engine: {partitions} ({self.why})"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTurnRow:
    """An engine that got these offsets to copy instead of the chosen one, or of the one before it, and the reason."""

    from_: From
    until: int
    engine: str
    why: str

    @classmethod
    def of(cls, turn: Turn) -> EngineTurnRow:
        return cls(from_=turn.range.from_, until=turn.range.until, engine=turn.engine, why=turn.why)

    @property
    def range(self) -> OffsetRange:
        return OffsetRange(self.from_, self.until)


def engine_rows(choices: Iterable[EngineChoice | None]) -> list[EngineRow]:
    """A row for each engine and reason, the most frequent one first."""
    counted = Counter(choice for choice in choices if choice is not None)
    return [EngineRow(engine=engine, why=why, partitions=count) for (engine, why), count in counted.most_common()]


def turn_lines(turns: Sequence[tuple[PartitionRow, EngineTurnRow]]) -> list[str]:
    """A line for each turn in a range."""
    lines = [f"{line.source} {turn.range} went to the engine {turn.engine}: {turn.why}" for line, turn in turns]
    more = len(lines) - MOST
    rest = [f"{more:,} more parts of ranges went to another engine; --json names them"] if more > 0 else []
    return [*lines[:MOST], *rest]
