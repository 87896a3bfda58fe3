"""Copies of another tool that a replication goes on behind: the document of ``adopt``, and lines of other tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kafka_replication.documents import PartitionRow, place
from kafka_replication.ledger.values import Adopted
from kafka_replication.model.offsets import PartitionKey
from kafka_replication.reporting.table import Columns, table

AdoptState = Literal["can be adopted", "adopted", "adopted before", "opened before", "nothing to adopt", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptRow(PartitionRow):
    """One partition. Live copying begins at the source offset ``start``, ``stored`` is what the tool says about that.
    ``adopted`` is what the ledger will have or has; null unless the records prove it.
    """

    state: AdoptState
    start: int | None = None
    stored: int | None = None
    aborted: int = 0  # records of the target that are of aborted transactions of the source
    adopted: Adopted | None = None
    error: str | None = None
    remedy: str | None = None

    def __str__(self) -> str:
        """The line of a partition that is not adopted."""
        text = f"REFUSED {self.source}: {self.error}" if self.state == "refused" else f"{self.source}: {self.error}"
        return f"{text}\n  remedy: {self.remedy}" if self.remedy else text


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptDocument:
    """``adopt``. ``applied`` is false for a dry run, which changes nothing."""

    replication: str
    applied: bool
    partitions: Sequence[AdoptRow]

    @property
    def text(self) -> str:
        shown = [(row, row.adopted) for row in self.partitions if row.adopted is not None]
        columns: Columns[tuple[AdoptRow, Adopted]] = {
            "partition": lambda row: row[0].source,
            "target": lambda row: row[0].target_topic,
            "state": lambda row: row[0].state,
            "start": lambda row: row[0].start,
            "stored": lambda row: row[0].stored,
            "target end": lambda row: row[1].target_until,
            "compared": lambda row: row[1].compared,
            "doubles": lambda row: row[1].doubles,
            "missing": lambda row: row[1].missing,
            "proof": lambda row: row[1].proof,
        }
        told = [str(row) for row in self.partitions if row.error]
        aborted = [
            f"NOTE {row.source}: {row.aborted} of these records are of aborted transactions of the source"
            for row in self.partitions
            if row.aborted
        ]
        can = sum(row.state == "can be adopted" for row in self.partitions)
        end = f"nothing was changed; with --apply {can} partitions are adopted" if can else ""
        return "\n".join(filter(None, [table(shown, columns) if shown else "", *aborted, *told, end]))


def adopted_text(key: PartitionKey, start: int, adopted: Adopted) -> str:
    """One line about a copy of another tool, for a table."""
    return (
        f"ADOPTED {key.source}: another tool copied the source offsets below {start} (adopt --from {adopted.source},"
        f" {adopted.time}), to {key.target} below {adopted.target_until}. Of its copy {adopted.compared} records, from"
        f" {adopted.target_from} on, were compared: {adopted.doubles} doubles, {adopted.missing} source records missing"
    )


def row_of(key: PartitionKey, state: AdoptState, **more: object) -> AdoptRow:
    return AdoptRow(**place(key), state=state, **more)  # type: ignore[arg-type]
