"""What was seen, run by run, in a file that outlives a session; and the table of it."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from stack.folders import REPOSITORY
from tests.faults.conduct import Verdict

if TYPE_CHECKING:
    from tests.faults.row import Row

RESULTS = REPOSITORY / "benchmarks" / "results"
_COLUMNS = (
    "fault",
    "runs",
    "seeds",
    "healed unaided",
    "lost",
    "doubled",
    "reordered",
    "time to heal, median",
    "or the error that names it",
)


class Results:
    """One line of JSON for each run; the last one of a row and seed counts."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._found: dict[tuple[str, int], dict[str, Any]] = {}
        if file.exists():
            for line in file.read_text().splitlines():
                each = json.loads(line)
                self._found[each["row"], each["seed"]] = each

    def add(self, row: str, seed: int, verdict: Verdict) -> None:
        each = {"row": row, "seed": seed, **asdict(verdict)}
        self._found[row, seed] = each
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a") as file:
            file.write(json.dumps(each) + "\n")

    def is_good(self, row: str, seed: int) -> bool:
        found = self._found.get((row, seed))
        return found is not None and found["outcome"] != "failed"

    def of(self, row: str) -> list[dict[str, Any]]:
        return sorted((each for (name, _), each in self._found.items() if name == row), key=lambda each: each["seed"])

    def failed(self, rows: Sequence[Row]) -> bool:
        return any(each["outcome"] == "failed" for row in rows for each in self.of(row.name))


def table(known: Results, rows: Sequence[Row], before: Mapping[str, str] = MappingProxyType({})) -> str:
    """Markdown. A row that was not run has its line of ``before``, or says how it has to end."""
    lines = [
        _line(row, found) if (found := known.of(row.name)) else before.get(row.name) or _not_run(row) for row in rows
    ]
    return "\n".join(["| " + " | ".join(_COLUMNS) + " |", "|" + " --- |" * len(_COLUMNS), *lines])


def _not_run(row: Row) -> str:
    must = f"must name “{row.expected}”" if row.expected else "must heal"
    return "| " + " | ".join((row.name, *[""] * (len(_COLUMNS) - 2), must.replace("|", "\\|"))) + " |"


def _line(row: Row, found: list[dict[str, Any]]) -> str:
    good = [each for each in found if each["outcome"] != "failed"]
    healed = [each for each in good if each["outcome"] == "healed"]
    sums = [str(sum(each["counts"].get(name, 0) for each in found)) for name in ("lost", "doubled", "reordered")]
    for place, name in enumerate(("lost", "doubled", "reordered")):
        sums[place] += " (by the fault)" if name in row.ignore and sums[place] != "0" else ""
    median = f"{statistics.median(each['seconds'] for each in healed):.0f} s" if healed else ""
    named = f"{len(good)} named: “{row.expected}”" if row.expected else ""
    unaided = f"{len(healed)} of {len(found)}" if not row.expected else "-"
    if row.expected and len(good) < len(found):
        named += f", {len(found) - len(good)} not"
    cells = (row.name, str(len(found)), _seeds(found), unaided, *sums, median, named.replace("|", "\\|"))
    return "| " + " | ".join(cells) + " |"


def _seeds(found: list[dict[str, Any]]) -> str:
    seeds = [each["seed"] for each in found]
    first, last = seeds[0], seeds[-1]
    return f"{first}-{last}" if last - first == len(seeds) - 1 and first != last else " ".join(map(str, seeds))


def write_docs(known: Results, rows: Sequence[Row], profile: str, folder: Path = RESULTS) -> None:
    """Put the table between its markers. A row that was not run here stays as the page has it; the table of a profile has
    only rows that were run. Raises SystemExit if no page has one.
    """
    page = folder / ("fault-profiles.md" if profile else "fault-results.md")
    begin, end = (f"<!-- faults{' ' if profile else ''}{profile}: {mark} -->" for mark in ("begin", "end"))
    text = page.read_text()
    if begin not in text or end not in text:
        raise SystemExit(f"{page} has no table of the profile {profile!r}: write the lines {begin} and {end} into it")
    before, rest = text.split(begin)
    there, after = rest.split(end)
    stays = {line.split("|")[1].strip(): line for line in there.splitlines()[3:] if line.startswith("|")}
    shown = [row for row in rows if known.of(row.name) or row.name in stays or not profile]
    page.write_text(f"{before}{begin}\n{table(known, shown, stays)}\n{end}{after}")
