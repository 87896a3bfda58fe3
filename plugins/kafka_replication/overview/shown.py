"""The rows of all replications as a table and as the document of ``overview``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from kafka_replication.documents import OverviewRow
from kafka_replication.model.sizes import amount
from kafka_replication.model.times import duration, to_text
from kafka_replication.overview.rows import Row, is_old
from kafka_replication.reporting.table import table

HEAD = ("replication", "state", "lag", "behind", "measured", "verified", "last copied", "next run")


def overview_table(rows: Sequence[Row], now: datetime) -> str:
    """One line a replication, then what needs a person with its remedy."""
    if not rows:
        return "no replication is known"
    wrong = (f"{row.state.upper()} {row.replication}: {_why(row)}" for row in rows if row.state.needs_person)
    return "\n".join([table(HEAD, [_cells(row, now) for row in rows]), *wrong])


def as_json(row: Row) -> OverviewRow:
    work = row.work
    return {
        "replication": row.replication,
        "source": row.source or None,
        "target": row.target or None,
        "state": row.state.value,
        "needs_person": row.state.needs_person,
        "partitions": row.partitions,
        "lag": row.lag.records,
        "lag_seconds": row.lag.seconds,
        "measured_at": _text(row.measured_at),
        "last_verified": _text(row.last_verified),
        "run_id": work.run_id if work else None,
        "records": work.records if work else None,
        "bytes": work.bytes if work else None,
        "seconds": work.seconds if work else None,
        "what": row.what or None,
        "remedy": row.remedy or None,
        "since": _text(row.since),
        "alerts": len(row.causes),
        "undecided": row.undecided,
        "running": [running.run_id for running in row.running],
        "next_run": _text(row.next_run),
        "paused": row.paused,
    }


def _cells(row: Row, now: datetime) -> tuple[str, ...]:
    lag, work = row.lag, row.work
    old = " (old)" if row.measured_at and is_old(row.measured_at, now) else ""
    return (
        row.replication,
        row.state.value,
        "-" if lag.records is None else f"{lag.records:,}",
        "-" if lag.seconds is None else duration(lag.seconds),
        _ago(row.measured_at, now) + old,
        _ago(row.last_verified, now),
        f"{work.records:,} records, {amount(work.bytes)}, {duration(work.seconds)}" if work else "-",
        "paused" if row.paused else to_text(row.next_run) if row.next_run else "by hand",
    )


def _why(row: Row) -> str:
    """The trouble, and its remedy."""
    return f"{row.what}\n  remedy: {row.remedy}" if row.remedy else row.what


def _ago(moment: datetime | None, now: datetime) -> str:
    return f"{duration(max(0.0, (now - moment).total_seconds()))} ago" if moment else "never"


def _text(moment: datetime | None) -> str | None:
    return to_text(moment) if moment else None
