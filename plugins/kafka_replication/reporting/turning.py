"""The document of ``cutover`` and ``failback``: the steps, and for each partition what is left to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kafka_replication.documents import GroupRow, PartitionRow
from kafka_replication.ledger.values import Seal
from kafka_replication.reporting.table import table

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
    target; ``surplus`` the number of target offsets that the source does not have, null if it is not known.
    ``last_write`` is the highest time of a record at the source, RFC 3339 UTC; null if it is not known.
    """

    lag: int
    last_write: str | None
    surplus: int | None = None
    seal: Seal | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnDocument:
    """``cutover`` and ``failback``. ``applied`` is false for a dry run. ``cut`` is the time from which on nobody has
    written to the source: every record before it is on the target; null as long as that is not known.
    """

    replication: str
    command: Literal["cutover", "failback"]
    applied: bool
    cut: str | None
    steps: Sequence[StepRow]
    partitions: Sequence[TurnRow]
    groups: Sequence[GroupRow]

    @property
    def failed(self) -> bool:
        """True if a step is not done."""
        return any(step.state != "done" for step in self.steps)

    @property
    def text(self) -> str:
        head = ("partition", "target", "lag", "last write", "only on target", "sealed")
        rows = [
            (
                str(row.source),
                row.target_topic,
                str(row.lag),
                row.last_write or "?",
                "?" if row.surplus is None else str(row.surplus),
                row.seal.time if row.seal else "-",
            )
            for row in self.partitions
        ]
        lines = [table(head, rows), *(f"{row.source}: {row.error}" for row in self.partitions if row.error)]
        for row in self.groups:
            exact = "exact" if row.exact == len(row.partitions) else f"reads at most {row.again} again"
            lines.append(f"group {row.group}: {row.state}, {exact}" + (f": {row.why}" if row.why else ""))
        lines += [f"{step.state.upper():8} {step.step}: {step.what}" for step in self.steps]
        if self.cut:
            lines.append(f"nobody has written to the source since {self.cut}")
        if not self.applied:
            lines.append("nothing was changed; --apply does the steps")
        elif self.failed:
            lines.append("not done: remove what stands in the way, and call the command again")
        return "\n".join(lines)
