"""The rows of all replications as a table and as the document of ``overview``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

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


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewRow:
    """One replication, as the store knows it. ``lag`` (offsets), ``lag_seconds`` and ``partitions`` are of the time
    ``measured_at``; ``last_verified`` is when a watermark moved last.

    ``state``: ``failing``, ``late``, ``waiting`` and ``unseen`` need a person; ``running``, ``behind``, ``paused`` and
    ``in sync`` do not. ``run_id``, ``records``, ``bytes`` and ``seconds`` are of the newest run that copied something.
    ``what`` and ``remedy`` are of the worst open alert, ``alerts`` is the number of open ones, ``undecided`` that of
    failed records without a decision. What is not known is null. ``next_run`` is null for runs by hand, and while the
    schedule is switched off.
    """

    replication: str
    source: str | None
    target: str | None
    state: str
    needs_person: bool
    partitions: int
    lag: int | None
    lag_seconds: float | None
    measured_at: str | None
    last_verified: str | None
    run_id: str | None
    records: int | None
    bytes: int | None
    seconds: float | None
    what: str | None
    remedy: str | None
    since: str | None
    alerts: int
    undecided: int
    running: list[str]
    next_run: str | None
    paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewDocument:
    """``overview``: all replications, first those that need a person; ``need_person`` counts these. ``broken`` has the
    mistakes of files that cannot be read.
    """

    replications: list[OverviewRow]
    need_person: int
    broken: tuple[str, ...]


def document(rows: Sequence[Row], broken: tuple[str, ...] = ()) -> OverviewDocument:
    """The document of ``overview``; ``broken`` are the mistakes of files."""
    return OverviewDocument(
        replications=[
            OverviewRow(
                replication=row.replication,
                source=row.source or None,
                target=row.target or None,
                state=row.state.value,
                needs_person=row.state.needs_person,
                partitions=row.partitions,
                lag=row.lag.records,
                lag_seconds=row.lag.seconds,
                measured_at=_text(row.measured_at),
                last_verified=_text(row.last_verified),
                run_id=row.work.run_id if row.work else None,
                records=row.work.records if row.work else None,
                bytes=row.work.bytes if row.work else None,
                seconds=row.work.seconds if row.work else None,
                what=row.what or None,
                remedy=row.remedy or None,
                since=_text(row.since),
                alerts=len(row.causes),
                undecided=row.undecided,
                running=[running.run_id for running in row.running],
                next_run=_text(row.next_run),
                paused=row.paused,
            )
            for row in rows
        ],
        need_person=sum(row.state.needs_person for row in rows),
        broken=broken,
    )


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
