"""The table of open causes: one row for each cause that is not over."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from pydantic import ValidationError
from sqlalchemy import ColumnElement, Connection, Row, and_, delete, insert, select, text

from kafka_replication.alerting.open_causes import Alert, Decide, Decision, Kind, OpenCause, taken_back
from kafka_replication.model.times import floor_millis, from_millis
from kafka_replication.runtime.private_json import deferred
from kafka_replication.store import connect, schema
from kafka_replication.store.database import Database, reads, writes
from kafka_replication.watermarks.sight import Drill, Look, PastAlert

_table, _past = schema.alerts, schema.past_alerts
# The kinds of rows that are no causes: the last look of Airflow's watch, the last decision about open causes, and the
# last drill. A version that does not know a kind leaves its rows alone.
_LOOK, _DECIDED, _DRILL = "look", "settled", "drill"
_OPEN, _OF_DRILL = deferred(OpenCause), deferred(Drill)
_LOCK = text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))")


class Alerts(Database):
    @reads
    def open_causes(self, db: Connection, replication: str) -> list[OpenCause]:
        return _open_causes(db, replication)

    def update_causes(self, replication: str, decide: Decide) -> Decision:
        """Call ``decide`` with the open causes and the time, and remember its result, in one transaction. What it
        decides to tell counts as told: nobody else is given the same.

        ``decide`` may be called more than once.
        """
        # The decision of an attempt whose commit may have succeeded: then its alerts are still to be sent.
        repeated: Decision | None = None

        def update(db: Connection) -> Decision:
            nonlocal repeated
            _lock(db, replication)
            before = _open_causes(db, replication)
            told = {row.key: row.told for row in before}
            alerts = repeated.alerts if repeated else ()
            marks = [(told.get(alert.open.key, {}).get(way), alert.mark) for alert in alerts for way in alert.to]
            if repeated and marks and all(stored == mark for stored, mark in marks):
                return repeated
            _put_row(db, replication, _DECIDED, {})  # a store that answers, but takes nothing, is not a good one
            repeated = decide(before, from_millis(connect.clock(db)))
            _put(db, replication, before, repeated.open)
            return repeated

        return self._write(update)

    @writes
    def take_back_alerts(self, db: Connection, replication: str, untold: Collection[Alert]) -> None:
        """Remember that none of their ways has taken these alerts; see `values.taken_back`."""
        _lock(db, replication)
        before = _open_causes(db, replication)
        _put(db, replication, before, taken_back(before, untold))

    @reads
    def past_alerts(self, db: Connection, replication: str, limit: int) -> list[PastAlert]:
        """The alerts that ended last, newest first."""
        query = select(_past).where(_past.c.replication == replication).order_by(_past.c.ended_at.desc()).limit(limit)
        return [
            PastAlert(
                kind=row.kind,
                subject=row.subject,
                since=from_millis(row.since),
                ended_at=from_millis(row.ended_at),
                what=row.what,
                remedy=row.remedy,
            )
            for row in db.execute(query)
        ]

    @writes
    def record_look(self, db: Connection, replication: str, paused: bool) -> None:
        """Remember that Airflow's watch looks now, and whether the schedule is switched off."""
        _lock(db, replication)
        _put_row(db, replication, _LOOK, {"paused": paused})

    @reads
    def last_look(self, db: Connection, replication: str) -> Look | None:
        """The last look that was recorded."""
        row = db.execute(select(_table).where(_is(replication, _LOOK))).one_or_none()
        return look_of(row) if row else None

    @writes
    def record_drill(self, db: Connection, replication: str, drill: Drill) -> None:
        """Remember this drill in place of the one before."""
        _lock(db, replication)
        _put_row(db, replication, _DRILL, _OF_DRILL.dump_python(drill, mode="json"))

    @reads
    def last_drill(self, db: Connection, replication: str) -> Drill | None:
        """The last drill that was recorded."""
        row = db.execute(select(_table).where(_is(replication, _DRILL))).one_or_none()
        return drill_of(row) if row else None


def drill_of(row: Row[Any]) -> Drill | None:
    """The drill that the row remembers; None if it is not one, or one of another version."""
    try:
        return _OF_DRILL.validate_json(row.document) if row.kind == _DRILL else None
    except ValidationError:
        return None


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


def _open_causes(db: Connection, replication: str) -> list[OpenCause]:
    query = select(_table).where(_table.c.replication == replication).order_by(_table.c.kind, _table.c.subject)
    return [cause for row in db.execute(query) if (cause := cause_of(row))]


def _lock(db: Connection, replication: str) -> None:
    """Lock the open causes until the transaction ends. Rows that do not exist yet cannot be locked, so the whole
    replication is locked. An SQLite transaction that writes is the only one anyway.
    """
    if db.dialect.name == "postgresql":
        db.execute(_LOCK, {"name": f"{_table.name} {replication}"})


def _put(db: Connection, replication: str, before: Sequence[OpenCause], after: Sequence[OpenCause]) -> None:
    """Write the changed rows."""
    stored, kept = {row.key: row for row in before}, {row.key: row for row in after}
    changed = [key for key, row in stored.items() if kept.get(key) != row]
    over = [row for key, row in stored.items() if key not in kept and row.announced_at and not row.over_at]
    if over:
        now = connect.clock(db)
        values = [
            {
                "replication": replication,
                "ended_at": now,
                "kind": row.key.kind.value,
                "subject": row.key.subject,
                "since": floor_millis(row.since),
                "what": row.cause.what,
                "remedy": row.cause.remedy,
            }
            for row in over
        ]
        db.execute(insert(_past), values)
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
    return {
        "replication": replication,
        "kind": row.key.kind.value,
        "subject": row.key.subject,
        "since": floor_millis(row.since),
        "last_seen": floor_millis(row.last_seen),
        "announced_at": row.announced_at and floor_millis(row.announced_at),
        "document": _OPEN.dump_json(row).decode(),
    }


def cause_of(row: Row[Any]) -> OpenCause | None:
    """The open cause that the row remembers; None if it is not one."""
    return _OPEN.validate_json(row.document) if row.kind in set(Kind) else None
