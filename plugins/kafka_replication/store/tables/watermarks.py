"""The tables of watermarks and their history. Reads and moves many partitions in one transaction."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, and_, bindparam, insert, select, tuple_, update

from kafka_replication.model.errors import Refused
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.times import floor_millis, from_millis
from kafka_replication.store import connect, schema
from kafka_replication.store.tables.rows import key_of, key_values, of_key
from kafka_replication.watermarks.rules import decide_advance, decide_restore
from kafka_replication.watermarks.values import Watermark, WatermarkChange

KEYS_AT_ONCE = 200  # 4 values each; SQLite before 3.32 takes 999 in a statement

Changes = Mapping[PartitionKey, WatermarkChange]
Results = dict[PartitionKey, Watermark | Refused]


def of_replication(db: Connection, replication: str) -> dict[PartitionKey, Watermark]:
    query = select(schema.watermarks).where(schema.watermarks.c.replication == replication)
    return {mark.key: mark for mark in map(_watermark, db.execute(query))}


def history_of(db: Connection, key: PartitionKey) -> list[Watermark]:
    return [_watermark(row) for row in db.execute(of_key(schema.history, key).order_by(schema.history.c.version))]


def unchanged(db: Connection, changes: Changes) -> dict[PartitionKey, Watermark]:
    """The stored watermarks of those ``changes`` that change nothing. Locks no row."""
    stored = _stored(db, changes, lock=False)
    results = _decide(stored, changes, from_millis(connect.clock(db)))
    return {key: mark for key, mark in stored.items() if results[key] is mark}


def advance(db: Connection, changes: Changes) -> Results:
    """Store all changes that the rules allow; see `WatermarkStore.advance_many`."""
    stored = _stored(db, changes, lock=True)
    results = _decide(stored, changes, from_millis(connect.clock(db)))
    _write(db, stored, [mark for mark in results.values() if isinstance(mark, Watermark)])
    return results


def restore(db: Connection, changes: Changes) -> dict[PartitionKey, Watermark]:
    """Store all changes or, with the caller's transaction, none. Raises StaleWriter."""
    stored = _stored(db, changes, lock=True)
    now = from_millis(connect.clock(db))
    results = {key: decide_restore(stored.get(key), change, now) for key, change in changes.items()}
    _write(db, stored, results.values())
    return results


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
    columns = [schema.watermarks.c[column.name] for column in schema.watermarks.primary_key.columns]
    marks: dict[PartitionKey, Watermark] = {}
    for part in _parts(sorted(keys)):
        key_rows = [tuple(key_values(key).values()) for key in part]
        query = select(schema.watermarks).where(tuple_(*columns).in_(key_rows)).order_by(*columns)
        marks |= {mark.key: mark for mark in map(_watermark, db.execute(query.with_for_update() if lock else query))}
    return marks


def _parts(keys: list[PartitionKey]) -> Iterator[list[PartitionKey]]:
    return (keys[start : start + KEYS_AT_ONCE] for start in range(0, len(keys), KEYS_AT_ONCE))


def _write(db: Connection, stored: Mapping[PartitionKey, Watermark], marks: Collection[Watermark]) -> None:
    """Store the new and changed watermarks, and add them to the history."""
    table = schema.watermarks
    new = [_values(mark) for mark in marks if mark.key not in stored]
    changed = [_values(mark) for mark in marks if mark.key in stored and mark is not stored[mark.key]]
    if new:
        db.execute(insert(table), new)
    if changed:
        names = [column.name for column in table.primary_key.columns]
        others = [column.name for column in table.columns if column.name not in names]
        is_key = and_(*(table.c[name] == bindparam(f"its_{name}") for name in names))
        statement = update(table).where(is_key).values({name: bindparam(f"new_{name}") for name in others})
        db.execute(
            statement,
            [
                {f"its_{name}": row[name] for name in names} | {f"new_{name}": row[name] for name in others}
                for row in changed
            ],
        )
    if new or changed:
        db.execute(insert(schema.history), new + changed)


def _values(mark: Watermark) -> dict[str, Any]:
    return key_values(mark.key) | {
        "generation": mark.generation,
        "source_topic_id": mark.source_topic_id,
        "target_topic_id": mark.target_topic_id,
        "next_offset": mark.offset,
        "version": mark.version,
        "updated_at": floor_millis(mark.updated_at),
        "run_id": mark.run_id,
    }


def _watermark(row: Row[Any]) -> Watermark:
    return Watermark(
        key=key_of(row),
        generation=row.generation,
        source_topic_id=row.source_topic_id,
        target_topic_id=row.target_topic_id,
        offset=row.next_offset,
        version=row.version,
        updated_at=from_millis(row.updated_at),
        run_id=row.run_id,
    )
