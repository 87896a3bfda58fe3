"""The report of a drill: its phases, its tables, and the file of its notes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table

from stack import drill_judge as judge
from stack.drill_judge import Side
from stack.drill_work import GROUPS, Notes, in_doubt


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Work of the consumers on one side, behind a move. ``said``: the records that each group was said to read again at
    most by the command; ``killed``: those that it had read at a source that was killed, and that are not known to have
    been committed.
    """

    name: str
    side: str
    seconds: float = 0
    calls: int = 0
    said: Mapping[str, int] = field(default_factory=dict)
    killed: Mapping[str, int] = field(default_factory=dict)
    count: str = ""  # of the records on both sides


def tables(phases: Sequence[Phase], notes: Notes, sides: Mapping[str, Side]) -> list[Table]:
    """The moves, both sides at the end, and the groups."""
    moves = Table("move", "calls", "seconds", "records", box=None, pad_edge=False)
    groups = Table("group", "move", "again", "said", "killed", box=None, pad_edge=False)
    for number, phase in enumerate(phases):
        if phase.calls:
            moves.add_row(phase.name, str(phase.calls), f"{phase.seconds:.1f}", phase.count)
            for group in GROUPS:
                again = judge.repeated_in(notes, group, number).total()
                groups.add_row(
                    group, phase.name, *map(str, (again, phase.said.get(group, 0), phase.killed.get(group, 0)))
                )
    ends = Table("at the end", "records", "missed", "repeated", "unordered", box=None, pad_edge=False)
    for name, side in sides.items():
        ends.add_row(name, *(str(len(one)) for one in (side.records, side.missed, side.repeated, side.unordered)))
    return [moves, ends, groups]


def keep(path: Path, notes: Notes, sides: Mapping[str, Side]) -> None:
    """Write what was read and counted to a file, to look for a cause."""
    kept = {
        "consumed": notes.consumed,
        "in doubt": sorted(in_doubt(notes)),
        "logs": {
            name: {f"{at.topic}-{at.partition}": log for at, log in side.logs.items()} for name, side in sides.items()
        },
    }
    path.write_text(json.dumps(kept))
