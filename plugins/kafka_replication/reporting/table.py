"""Tables as plain text, for a terminal, a file and Airflow's log. Airflow's log would show colour codes as text.

The documents of ``check`` and ``plan``.

The engines of a plan or a report: which one begins with how many partitions, which one takes over, and why.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from kafka_replication.documents import FailureDocument, From, PartitionRow
from kafka_replication.model.choices import EngineChoice, Turn
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning.plan import Plan

T = TypeVar("T")
Columns = Mapping[str, Callable[[T], object]]
_GAP = 2


def table(rows: Collection[T], columns: Columns[T]) -> str:
    """Aligned columns without lines or colours: the head of each, and what it has of a row; None is ``-``. A column is
    as wide as its cells: a cell is never cut or wrapped.

    Each column is passed to rich as one cell with many lines. That takes a third of the time: 0.2 s for 1,000 rows.
    """
    from rich.cells import cell_len  # only who draws a table loads it
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    texts = [[head, *(_cell(value_of(row)) for row in rows)] for head, value_of in columns.items()]
    grid = Table.grid(*[""] * len(texts), padding=(0, _GAP, 0, 0))
    grid.add_row(*(Text("\n".join(cells), no_wrap=True) for cells in texts))  # in a str, [120, 480) is markup
    console = Console(
        file=io.StringIO(),
        width=sum(max(map(cell_len, cells)) + _GAP for cells in texts),
        color_system=None,
        legacy_windows=False,
    )
    with console.capture() as captured:
        console.print(grid)
    return "\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n"))


def _cell(value: object) -> str:
    return "-" if value is None else str(value).replace("\n", " ")


MOST = 10  # turns, or places of a group, that are named for people


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckDocument:
    """``check``: what a run would refuse or warn about. ``ok`` is false if one of the findings is an error. ``engines``
    is empty where nothing would be copied, or if there is no plan.
    """

    replication: str
    ok: bool
    findings: Sequence[Trouble]
    engines: Sequence[EngineRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFailureDocument(FailureDocument):
    """``check`` while a cluster does not answer: why, and the findings about everything else."""

    replication: str
    ok: bool
    findings: Sequence[Trouble]
    engines: Sequence[EngineRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFailureDocument(FailureDocument):
    """``plan`` while a cluster does not answer: why, and the findings about the other one."""

    replication: str
    findings: Sequence[Trouble]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDocument(Plan):
    """``plan``: what a run would do now."""

    findings: Sequence[Trouble]

    @classmethod
    def of(cls, plan: Plan, findings: Sequence[Trouble]) -> PlanDocument:
        return cls(**{each.name: getattr(plan, each.name) for each in fields(Plan)}, findings=findings)


def verdict(findings: Sequence[Trouble]) -> str:
    """The last line of a check: whether a run would refuse something."""
    errors = sum(finding.severity == "error" for finding in findings)
    warnings = counted(len(findings) - errors, "warning")
    if errors:
        return f"not ok: {counted(errors, 'error')}, {warnings}"
    return f"ok: a run would refuse nothing; {warnings}" if findings else "ok: no findings"


def counted(number: int, what: str) -> str:
    """Such as ``1 error`` or ``3 errors``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def first_of(names: Collection[Any], what: str) -> str:
    """The first one, and how many there are more."""
    return f"{min(names)}" + (f" and {counted(len(names) - 1, f'other {what}')}" if len(names) > 1 else "")
