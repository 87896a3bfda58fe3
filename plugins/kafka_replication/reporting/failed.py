"""Failed records for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from kafka_replication.documents import PartitionRow, place
from kafka_replication.ledger.entries import Place
from kafka_replication.reporting.table import Columns, table
from kafka_replication.watermarks.failed import FailedRow

SHOWN = 50  # rows of a table


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRow:
    """One step in the life of a failed record. ``by`` is empty for what a run did."""

    time: str
    state: str
    run_id: str
    by: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRecordRow(PartitionRow):
    """One record that could not be copied. ``size`` (key, value and headers) and ``digest`` are of the record; null or
    empty if it could not be read. ``place`` is where it lies in the quarantine topic; null for a skipped record.
    """

    generation: int
    offset: int
    kind: str
    state: str
    size: int | None
    key_digest: str | None
    digest: str
    reason: str
    error_class: str
    place: Place | None
    history: list[HistoryRow]

    @classmethod
    def of(cls, row: FailedRow, **more: Any) -> Self:
        """``more`` are the further fields of a subclass."""
        record = row.record
        return cls(
            **place(row.key),
            generation=row.generation,
            offset=record.offset,
            kind=record.kind,
            state=row.state,
            size=None if record.size < 0 else record.size,
            key_digest=record.key_digest or None,
            digest=record.digest,
            reason=record.reason,
            error_class=record.error,
            place=record.place,
            history=[
                HistoryRow(time=step.time, state=step.state, run_id=step.run_id, by=step.by, reason=step.reason)
                for step in row.history
            ],
            **more,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedDocument:
    """``failed list`` and ``failed show``."""

    replication: str
    records: list[FailedRecordRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedRow(FailedRecordRow):
    """A record after a decision. ``done`` is false if it stays as it was, and ``why`` says the reason.

    ``target`` is where a retried record lies now; ``order_lost`` if newer records of its partition lie before it.
    """

    done: bool
    target: str | None
    order_lost: bool
    why: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedDocument:
    """``failed retry`` and ``failed discard``."""

    replication: str
    records: list[DecidedRow]


def failed_table(rows: Sequence[FailedRow]) -> str:
    """A line for each record, and their number by kind and state."""
    if not rows:
        return "no failed records"
    columns: Columns[FailedRow] = {
        "record": lambda row: f"{row.key.source} offset {row.record.offset}",
        "kind": lambda row: row.record.kind,
        "state": lambda row: row.state,
        "size": lambda row: None if row.record.size < 0 else f"{row.record.size:,}",
        "key digest": lambda row: row.record.key_digest[:12] or None,
        "quarantined at": lambda row: row.record.place,
        "reason": lambda row: row.record.reason,
    }
    counts = Counter((row.record.kind, row.state) for row in rows)
    sums = [f"{count} {kind}, {state}" for (kind, state), count in sorted(counts.items())]
    rest = [f"and {len(rows) - SHOWN} more: --json lists all of them"] if len(rows) > SHOWN else []
    return "\n".join([table(rows[:SHOWN], columns), *rest, "; ".join(sums)])


def shown(rows: Sequence[FailedRow]) -> str:
    """Everything about each record."""
    return "\n\n".join(map(_shown, rows)) or "no failed records"


def _shown(row: FailedRow) -> str:
    record, read = row.record, row.record.size >= 0
    fields = {
        "kind": f"{record.kind} ({record.error})",
        "state": row.state,
        "reason": record.reason,
        "size": f"{record.size:,} bytes" if read else "not known",
        "key digest": record.key_digest or ("no key" if read else "not known"),
        "digest": record.digest or "not known",
        "target": f"{row.key.target_topic}, generation {row.generation}",
        "quarantined at": str(record.place or "nowhere: it was skipped"),
    }
    history = [
        f"  {step.time} {step.state}{f' by {step.by}' if step.by else ''}{f': {step.reason}' if step.reason else ''}"
        f" (run {step.run_id})"
        for step in row.history
    ]
    lines = [f"  {name}: {value}" for name, value in fields.items()]
    return "\n".join([f"{row.key.source} offset {record.offset}", *lines, *history])
