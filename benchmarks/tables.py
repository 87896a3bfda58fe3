"""Tables in Markdown, ready for benchmarks/results."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from benchmarks.workload import REPEATS, SCALE


def command(name: str) -> str:
    """What makes this table again."""
    more = "".join(f"{key}={os.environ[key]} " for key in ("SCALE", "REPEATS") if key in os.environ)
    return f"{more}BENCH_ONLY={name} make bench"


def show(name: str, about: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print what was measured under the command that measured it."""
    scale = "" if SCALE == 1 else f" {SCALE:g} of the records; speeds mean little."
    turns = "one turn" if REPEATS == 1 else f"medians of {REPEATS} turns"
    print(f"\n`{command(name)}`: {about}; {turns}, on {os.cpu_count()} processors that all brokers share.{scale}\n")
    heading(columns)
    for cells in rows:
        row(cells)
    print(flush=True)


def heading(columns: Sequence[str]) -> None:
    row(columns)
    print(f"|{' --- |' * len(columns)}", flush=True)


def row(cells: Sequence[object]) -> None:
    print(f"| {' | '.join(map(_shown, cells))} |", flush=True)


def _shown(value: object) -> str:
    """A number with as many digits as mean something."""
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
