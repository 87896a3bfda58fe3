"""The table of open causes: one row for each cause that is not over."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, insert, select, text

from kafka_replication.alerting.values import Alert, Decide, Decision, Kind, OpenCause, taken_back
from kafka_replication.model.times import floor_millis, from_millis
from kafka_replication.runtime.private_json import deferred
from kafka_replication.store import connect, schema
from kafka_replication.watermarks.sight import Look

_table = schema.alerts
# The kinds of rows that are no causes: the last look of Airflow's watch, and the last decision about open causes.
_LOOK, _DECIDED = "look", "settled"
_OPEN = deferred(OpenCause)
_LOCK = text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))")


def open_causes(db: Connection, replication: str) -> list[OpenCause]:
    query = select(_table).where(_table.c.replication == replication).order_by(_table.c.kind, _table.c.subject)
    return [cause for row in db.execute(query) if (cause := cause_of(row))]


def update_causes(db: Connection, replication: str, decide: Decide, repeated: Decision | None = None) -> Decision:
    """Store the decision about what is open, and return it. ``repeated`` is the decision of an attempt whose commit may
    have succeeded: then its alerts count as told, and are still to be sent.
    """
    before = _locked(db, replication)
    told = {row.key: row.told for row in before}
    marks = [(told.get(a.open.key, {}).get(way), a.mark) for a in (repeated.alerts if repeated else ()) for way in a.to]
    if repeated and marks and all(stored == mark for stored, mark in marks):
        return repeated
    _put_row(db, replication, _DECIDED, {})  # a store that answers, but takes nothing, is not a good one
    decision = decide(before, from_millis(connect.clock(db)))
    _put(db, replication, before, decision.open)
    return decision


def take_back(db: Connection, replication: str, untold: Collection[Alert]) -> None:
    before = _locked(db, replication)
    _put(db, replication, before, taken_back(before, untold))


def record_look(db: Connection, replication: str, paused: bool) -> None:
    _lock(db, replication)
    _put_row(db, replication, _LOOK, {"paused": paused})


def last_look(db: Connection, replication: str) -> Look | None:
    row = db.execute(select(_table).where(_is(replication, _LOOK))).one_or_none()
    return look_of(row) if row else None


def look_of(row: Row[Any]) -> Look | None:
    """The look that the row remembers; None if it is not one."""
    if row.kind != _LOOK:
        return None
    return Look(from_millis(row.last_seen), bool(json.loads(row.document)["paused"]))


def _put_row(db: Connection, replication: str, kind: str, document: dict[str, Any]) -> None:
    """Write a row that is no cause, with the current time."""
    now = connect.clock(db)
    db.execute(delete(_table).where(_is(replication, kind)))
    row = {"replication": replication, "kind": kind, "subject": "", "since": now, "last_seen": now}
    db.execute(insert(_table).values(**row, document=json.dumps(document)))


def _is(replication: str, kind: str) -> ColumnElement[bool]:
    return and_(_table.c.replication == replication, _table.c.kind == kind)


def _locked(db: Connection, replication: str) -> list[OpenCause]:
    """The open causes, locked until the transaction ends. Rows that do not exist yet cannot be locked, so the whole
    replication is locked. An SQLite transaction that writes is the only one anyway.
    """
    _lock(db, replication)
    return open_causes(db, replication)


def _lock(db: Connection, replication: str) -> None:
    if db.dialect.name == "postgresql":
        db.execute(_LOCK, {"name": f"{_table.name} {replication}"})


def _put(db: Connection, replication: str, before: Sequence[OpenCause], after: Sequence[OpenCause]) -> None:
    """Write the changed rows."""
    stored, kept = {row.key: row for row in before}, {row.key: row for row in after}
    changed = [key for key, row in stored.items() if kept.get(key) != row]
    over = [row for key, row in stored.items() if key not in kept and row.announced_at and not row.over_at]
    if over:
        now = connect.clock(db)
        db.execute(insert(schema.past_alerts), [_past_values(replication, row, now) for row in over])
    for key in changed:
        db.execute(
            delete(_table).where(
                _table.c.replication == replication, _table.c.kind == key.kind.value, _table.c.subject == key.subject
            )
        )
    new = [_values(replication, row) for key, row in kept.items() if stored.get(key) != row]
    if new:
        db.execute(insert(_table), new)


def _values(replication: str, row: OpenCause) -> dict[str, Any]:
    def millis(moment: datetime | None) -> int | None:
        return None if moment is None else floor_millis(moment)

    return {
        "replication": replication,
        "kind": row.key.kind.value,
        "subject": row.key.subject,
        "since": millis(row.since),
        "last_seen": millis(row.last_seen),
        "announced_at": millis(row.announced_at),
        "document": _OPEN.dump_json(row).decode(),
    }


def _past_values(replication: str, row: OpenCause, now: int) -> dict[str, Any]:
    return {
        "replication": replication,
        "ended_at": now,
        "kind": row.key.kind.value,
        "subject": row.key.subject,
        "since": floor_millis(row.since),
        "what": row.cause.what,
        "remedy": row.cause.remedy,
    }


def cause_of(row: Row[Any]) -> OpenCause | None:
    """The open cause that the row remembers; None if it is not one."""
    return _OPEN.validate_json(row.document) if row.kind in set(Kind) else None
