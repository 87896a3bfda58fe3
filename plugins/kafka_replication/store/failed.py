"""The table of failed records: one row for each record that was set aside, as `watermarks.failed` makes it."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, delete, insert, or_, select

from kafka_replication.ledger.entries import FailedRecord, Place
from kafka_replication.model.times import floor_millis
from kafka_replication.runtime.private_json import deferred
from kafka_replication.store import connect, schema
from kafka_replication.store.database import Database, reads
from kafka_replication.store.rows import is_row, key_of, key_values
from kafka_replication.watermarks.failed import FailedId, FailedRow, Step

_table = schema.failed_records
_HISTORY = deferred(tuple[Step, ...])
_OF_RECORD = ("kind", "reason", "error", "size", "key_digest", "digest")
AT_ONCE = 100  # rows of one statement; SQLite allows a bounded number of values


class FailedRecords(Database):
    def record_failed(self, rows: Collection[FailedRow]) -> None:
        """Insert these failed records. If a row exists, its history gets the new steps."""
        if rows:
            self._write(lambda db: _record(db, rows))

    @reads
    def failed(self, db: Connection, replication: str) -> list[FailedRow]:
        """All failed records of the replication, in order."""
        return [_row(row) for row in db.execute(_in_order(replication))]

    @reads
    def failed_page(self, db: Connection, replication: str, states: Collection[str], limit: int) -> list[FailedRow]:
        """The first failed records of the replication in these states, in order."""
        query = _in_order(replication).where(_table.c.state.in_(states)).limit(limit)
        return [_row(row) for row in db.execute(query)]


def _in_order(replication: str) -> Select[Any]:
    return select(_table).where(_table.c.replication == replication).order_by(*_table.primary_key.columns)


def _record(db: Connection, rows: Collection[FailedRow]) -> None:
    ordered, now = sorted(rows, key=lambda row: row.id), connect.clock(db)
    for first in range(0, len(ordered), AT_ONCE):
        batch = ordered[first : first + AT_ONCE]
        there = or_(*(is_row(_table, _id_values(row.id)) for row in batch))
        known = {row.id: row for row in map(_row, db.execute(select(_table).where(there).with_for_update()))}
        joined = [row.joined(known[row.id]) if row.id in known else row for row in batch]
        changed = [row for row in joined if row != known.get(row.id)]
        if changed:
            db.execute(delete(_table).where(or_(*(is_row(_table, _id_values(row.id)) for row in changed))))
            db.execute(insert(_table), [_values(row, now) for row in changed])


def _id_values(id_: FailedId) -> dict[str, Any]:
    return key_values(id_.key) | {"generation": id_.generation, "source_offset": id_.offset}


def _values(row: FailedRow, now: int) -> dict[str, Any]:
    place = row.record.place
    return {
        **_id_values(row.id),
        **{name: getattr(row.record, name) for name in _OF_RECORD},
        "state": row.state,
        "place_topic": place.topic if place else None,
        "place_partition": place.partition if place else None,
        "place_offset": place.offset if place else None,
        "history": _HISTORY.dump_json(row.history).decode(),
        "updated_at": floor_millis(datetime.fromisoformat(row.decided_at)) if row.decided_at else now,
    }


def _row(row: Row[Any]) -> FailedRow:
    place = Place(row.place_topic, row.place_partition, row.place_offset) if row.place_topic is not None else None
    of_record = {name: getattr(row, name) for name in _OF_RECORD}
    return FailedRow(
        key=key_of(row),
        generation=row.generation,
        record=FailedRecord(offset=row.source_offset, place=place, **of_record),
        history=_HISTORY.validate_json(row.history),
    )
