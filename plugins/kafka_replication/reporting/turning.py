"""The document of ``cutover`` and ``failback``: the steps, and for each partition what is left to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from kafka_replication.documents import GroupRow, Pairs, PartitionRow
from kafka_replication.ledger.values import Seal
from kafka_replication.model.offsets import Coverage
from kafka_replication.reporting.table import MOST, counted, table

NOTHING: Final = Coverage()
StepState = Literal["done", "to do", "blocked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """One step. ``what`` says what was done or is to be done, or what stands in its way."""

    step: str
    state: StepState
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRow(PartitionRow):
    """One partition of the direction that copies. ``lag`` is the number of source offsets that are not verified on the
    target. ``last_write`` is the highest time of a record at the source, RFC 3339 UTC; null if it is not known.

    Of a failback, whose source is the target of the first direction: ``new`` are the source offsets that are not copied
    yet; the copies begin at the target offset ``begins_at``, if nobody writes there; null where it is not known.
    ``surplus`` is the number of target offsets that the source does not have, which are ``surplus_offsets``; null if it
    is not known. ``error`` says what is in the way of this partition.
    """

    lag: int
    last_write: str | None
    surplus: int | None = None
    seal: Seal | None = None
    error: str = ""
    new: Pairs = NOTHING
    begins_at: int | None = None
    surplus_offsets: Pairs = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnDocument:
    """``cutover`` and ``failback``. ``applied`` is false for a dry run. ``cut`` is the time from which on nobody has
    written to the source: every record before it is on the target; null as long as that is not known.

    ``replication`` is the direction that copies, from the cluster with the connection ``source`` to that with the
    connection ``target``. ``first`` is the direction to which a failback goes back, which copied the other way, and
    whose file calls the connections so; empty for a cut-over.
    """

    replication: str
    command: Literal["cutover", "failback"]
    applied: bool
    cut: str | None
    steps: Sequence[StepRow]
    partitions: Sequence[TurnRow]
    groups: Sequence[GroupRow]
    source: str = ""
    target: str = ""
    first: str = ""

    @property
    def failed(self) -> bool:
        """True if a step is not done."""
        return any(step.state != "done" for step in self.steps)

    @property
    def text(self) -> str:
        """For people. Sides are called by their connections: the source of a failback is the target of its file."""
        lines = [self._title, *self._table, *(row.error for row in self.partitions if row.error)]
        if not self.partitions:
            lines.append(f"no partition of {self.source} is selected")
        lines += [self._line(row) for row in self.groups]
        lines += [
            f"{step.state.upper():8} {step.step}" + (f": {step.what}" if step.what else "") for step in self.steps
        ]
        if self.cut:
            lines.append(f"nobody has written to {self.source} since {self.cut}")
        if not self.applied:
            blocked = any(row.error for row in self.partitions)
            do = "; first remove what stands in the way" if blocked else "; --apply does the steps"
            lines.append("nothing was changed" + (do if self.failed else ""))
        elif self.failed:
            lines.append("not done: remove what stands in the way, and call the command again")
        return "\n".join(lines)

    @property
    def _title(self) -> str:
        if not self.first:
            return f"cut-over of {self.replication}, which copies from {self.source} to {self.target}"
        return (
            f"failback: {self.replication} copies from {self.source} (where {self.first} copied to) back to"
            f" {self.target} (where {self.first} copied from)"
        )

    @property
    def _table(self) -> list[str]:
        source, target = self.source, self.target
        columns: dict[str, Callable[[TurnRow], object]] = {
            f"partition on {source}": lambda row: row.source,
            f"topic on {target}": lambda row: row.target_topic,
            "lag": lambda row: row.lag,
            "last write": lambda row: row.last_write or "?",
        }
        if self.first:  # the offsets that one side alone has
            columns |= {
                f"new on {source}": lambda row: _spans(row.new),
                f"begins on {target} at": lambda row: (
                    ("?" if row.begins_at is None else row.begins_at) if row.new else None
                ),
                f"only on {target}": lambda row: _spans(row.surplus_offsets),
            }
        columns["sealed"] = lambda row: row.seal and row.seal.time
        return [table(self.partitions, columns)] if self.partitions else []

    def _line(self, row: GroupRow) -> str:
        text = f"group {row.group}: {'would move' if row.state == 'planned' and not self.applied else row.state}"
        places = [f"{place.source} goes on at {place.place}" for place in row.partitions if place.place is not None]
        if places:
            exact = row.exact == len(row.partitions)
            text += ", exact" if exact else f", reads at most {counted(row.again, 'record')} again"
            if not self.applied:
                more = f", and {counted(len(places) - MOST, 'more partition')}" if len(places) > MOST else ""
                text += f" ({', '.join(places[:MOST])}{more})"
        return text + (f": {row.why}" if row.why else "")


def _spans(offsets: Coverage) -> str | None:
    return f"{offsets} ({offsets.span})" if offsets else None
