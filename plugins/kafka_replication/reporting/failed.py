"""Failed records for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kafka_replication import documents
from kafka_replication.reporting.table import table
from kafka_replication.watermarks.failed import FailedRow

SHOWN = 50  # rows of a table


def as_json(row: FailedRow) -> documents.FailedRecordRow:
    """The stable interface of ``failed list --json``."""
    record, place = row.record, row.record.place
    return {
        "topic": row.key.source.topic,
        "partition": row.key.source.partition,
        "target_topic": row.key.target_topic,
        "generation": row.generation,
        "offset": record.offset,
        "kind": record.kind,
        "state": row.state,
        "size": None if record.size < 0 else record.size,
        "key_digest": record.key_digest or None,
        "digest": record.digest,
        "reason": record.reason,
        "error_class": record.error,
        "place": {"topic": place.topic, "partition": place.partition, "offset": place.offset} if place else None,
        "history": [
            {"time": step.time, "state": step.state, "run_id": step.run_id, "by": step.by, "reason": step.reason}
            for step in row.history
        ],
    }


def failed_table(rows: Sequence[FailedRow]) -> str:
    """A line for each record, and their number by kind and state."""
    if not rows:
        return "no failed records"
    head = ("record", "kind", "state", "size", "key digest", "quarantined at", "reason")
    lines = [
        (
            f"{row.key.source} offset {row.record.offset}",
            row.record.kind,
            row.state,
            "-" if row.record.size < 0 else f"{row.record.size:,}",
            row.record.key_digest[:12] or "-",
            str(row.record.place or "-"),
            row.record.reason,
        )
        for row in rows[:SHOWN]
    ]
    counts = Counter((row.record.kind, row.state) for row in rows)
    sums = [f"{count} {kind}, {state}" for (kind, state), count in sorted(counts.items())]
    rest = [f"and {len(rows) - SHOWN} more: --json lists all of them"] if len(rows) > SHOWN else []
    return "\n".join([table(head, lines), *rest, "; ".join(sums)])


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
