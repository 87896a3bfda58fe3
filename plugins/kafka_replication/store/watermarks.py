"""The table of watermarks. Reads and moves many partitions in one transaction."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, select, tuple_, update

from kafka_replication.model.errors import Refused
from kafka_replication.model.offsets import PartitionKey
from kafka_replication.model.times import floor_millis, from_millis
from kafka_replication.store import connect, schema
from kafka_replication.store.database import Database, reads
from kafka_replication.store.tables import key_of, key_values
from kafka_replication.watermarks.values import Watermark, WatermarkChange, decide_advance, decide_restore

KEYS_AT_ONCE = 200  # 4 values each; SQLite before 3.32 takes 999 in a statement

Changes = Mapping[PartitionKey, WatermarkChange]
Results = dict[PartitionKey, Watermark | Refused]
_table = schema.watermarks
_AS_IN_ROW = ("generation", "source_topic_id", "target_topic_id", "version", "run_id")


class Watermarks(Database):
    @reads
    def watermarks(self, db: Connection, replication: str) -> dict[PartitionKey, Watermark]:
        query = select(_table).where(_table.c.replication == replication)
        return {mark.key: mark for mark in map(_watermark, db.execute(query))}

    def advance_many(self, changes: Collection[WatermarkChange]) -> dict[PartitionKey, Watermark | Refused]:
        """Compare-and-set by the rules of `rules.decide_advance`, in one transaction, at most one change per
        partition.

        The result of each partition is the watermark stored afterwards, or its error (`StaleWriter`, `Refused`). An
        error does not stop other partitions. A partition that does not change is not written.
        """

        def unchanged(db: Connection) -> Results:
            stored = _stored(db, by_key, lock=False)
            decided = _decide(stored, by_key, from_millis(connect.clock(db)))
            return {key: mark for key, mark in stored.items() if decided[key] is mark}

        def advance(db: Connection) -> Results:
            stored = _stored(db, changed, lock=True)
            decided = _decide(stored, changed, from_millis(connect.clock(db)))
            _write(db, stored, [mark for mark in decided.values() if isinstance(mark, Watermark)])
            return decided

        by_key = {change.key: change for change in changes}
        # First read without a lock: most partitions of most runs do not change, and an idle run writes nothing.
        results = self._read(unchanged) if by_key else {}
        changed = {key: change for key, change in by_key.items() if key not in results}
        return results | self._write(advance) if changed else results

    def restore_many(self, changes: Collection[WatermarkChange]) -> dict[PartitionKey, Watermark]:
        """Store exactly these watermarks, even lower ones, by the rules of `rules.decide_restore`.

        Stores all of them or none. Raises StaleWriter.
        """

        def restore(db: Connection) -> dict[PartitionKey, Watermark]:
            stored = _stored(db, by_key, lock=True)
            now = from_millis(connect.clock(db))
            restored = {key: decide_restore(stored.get(key), change, now) for key, change in by_key.items()}
            _write(db, stored, restored.values())
            return restored

        by_key = {change.key: change for change in changes}
        return self._write(restore) if by_key else {}


def _decide(stored: Mapping[PartitionKey, Watermark], changes: Changes, now: datetime) -> Results:
    results: Results = {}
    for key, change in changes.items():
        try:
            results[key] = decide_advance(stored.get(key), change, now)
        except Refused as refused:
            results[key] = refused
    return results


def _stored(db: Connection, keys: Collection[PartitionKey], *, lock: bool) -> dict[PartitionKey, Watermark]:
    """The stored watermarks. Rows are locked in one fixed order, so that two transactions cannot deadlock."""
    columns, ordered = [*_table.primary_key.columns], sorted(keys)
    marks: dict[PartitionKey, Watermark] = {}
    for start in range(0, len(ordered), KEYS_AT_ONCE):
        key_rows = [tuple(key_values(key).values()) for key in ordered[start : start + KEYS_AT_ONCE]]
        query = select(_table).where(tuple_(*columns).in_(key_rows)).order_by(*columns)
        marks |= {mark.key: mark for mark in map(_watermark, db.execute(query.with_for_update() if lock else query))}
    return marks


def _write(db: Connection, stored: Mapping[PartitionKey, Watermark], marks: Collection[Watermark]) -> None:
    """Store the new and changed watermarks."""
    new = [_values(mark) for mark in marks if mark.key not in stored]
    changed = [_values(mark) for mark in marks if mark.key in stored and mark is not stored[mark.key]]
    if new:
        db.execute(insert(_table), new)
    if changed:
        statement = update(_table).values({c.name: bindparam(f"new_{c.name}") for c in _table.c if not c.primary_key})
        for column in _table.primary_key.columns:
            statement = statement.where(column == bindparam(f"new_{column.name}"))
        db.execute(statement, [{f"new_{name}": value for name, value in row.items()} for row in changed])


def _values(mark: Watermark) -> dict[str, Any]:
    return {
        **key_values(mark.key),
        **{name: getattr(mark, name) for name in _AS_IN_ROW},
        "next_offset": mark.offset,
        "updated_at": floor_millis(mark.updated_at),
    }


def _watermark(row: Row[Any]) -> Watermark:
    as_in_row: dict[str, Any] = {name: getattr(row, name) for name in _AS_IN_ROW}
    return Watermark(key=key_of(row), offset=row.next_offset, updated_at=from_millis(row.updated_at), **as_in_row)
