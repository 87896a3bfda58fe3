"""The table of failed records: one row for each record that was set aside, as `watermarks.failed` makes it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, and_, delete, insert, or_, select

from kafka_replication.ledger.entries import FailedRecord, Place
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.model.times import floor_millis
from kafka_replication.runtime.private_json import deferred
from kafka_replication.store import connect, schema
from kafka_replication.watermarks.failed import FailedId, FailedRow, Step

_table = schema.failed_records
_HISTORY = deferred(tuple[Step, ...])
AT_ONCE = 100  # rows of one statement; SQLite allows a bounded number of values


def of_replication(db: Connection, replication: str) -> list[FailedRow]:
    query = select(_table).where(_table.c.replication == replication).order_by(*_table.primary_key.columns)
    return [_row(row) for row in db.execute(query)]


def in_states(db: Connection, replication: str, states: Collection[str], limit: int) -> list[FailedRow]:
    """The first of these, in order."""
    query = select(_table).where(_table.c.replication == replication, _table.c.state.in_(states))
    return [_row(row) for row in db.execute(query.order_by(*_table.primary_key.columns).limit(limit))]


def record(db: Connection, rows: Collection[FailedRow]) -> None:
    """Insert these rows, or join them with the ones that are there."""
    now = connect.clock(db)
    for some in _batches(sorted(rows, key=lambda row: row.id)):
        there = _is_one_of([row.id for row in some])
        known = {row.id: row for row in map(_row, db.execute(select(_table).where(there).with_for_update()))}
        changed = [joined for row in some if (joined := _joined(row, known.get(row.id))) != known.get(row.id)]
        if changed:
            db.execute(delete(_table).where(_is_one_of([row.id for row in changed])))
            db.execute(insert(_table), [_values(row, now) for row in changed])


def _joined(row: FailedRow, known: FailedRow | None) -> FailedRow:
    return row.joined(known) if known else row


def _batches(rows: Sequence[FailedRow]) -> Iterator[Sequence[FailedRow]]:
    for first in range(0, len(rows), AT_ONCE):
        yield rows[first : first + AT_ONCE]


def _is_one_of(ids: Collection[FailedId]) -> Any:
    columns = _table.c
    return or_(
        *(
            and_(
                columns.replication == one.key.replication,
                columns.source_topic == one.key.source.topic,
                columns.source_partition == one.key.source.partition,
                columns.target_topic == one.key.target_topic,
                columns.generation == one.generation,
                columns.source_offset == one.offset,
            )
            for one in ids
        )
    )


def _values(row: FailedRow, now: int) -> dict[str, Any]:
    record, place = row.record, row.record.place
    return {
        "replication": row.key.replication,
        "source_topic": row.key.source.topic,
        "source_partition": row.key.source.partition,
        "target_topic": row.key.target_topic,
        "generation": row.generation,
        "source_offset": record.offset,
        "kind": record.kind,
        "state": row.state,
        "size": record.size,
        "key_digest": record.key_digest,
        "digest": record.digest,
        "reason": record.reason,
        "error": record.error,
        "place_topic": place.topic if place else None,
        "place_partition": place.partition if place else None,
        "place_offset": place.offset if place else None,
        "history": _HISTORY.dump_json(row.history).decode(),
        "updated_at": floor_millis(datetime.fromisoformat(row.decided_at)) if row.decided_at else now,
    }


def _row(row: Row[Any]) -> FailedRow:
    place = Place(row.place_topic, row.place_partition, row.place_offset) if row.place_topic is not None else None
    return FailedRow(
        key=PartitionKey(row.replication, TopicPartition(row.source_topic, row.source_partition), row.target_topic),
        generation=row.generation,
        record=FailedRecord(
            offset=row.source_offset,
            kind=row.kind,
            reason=row.reason,
            error=row.error,
            size=row.size,
            key_digest=row.key_digest,
            digest=row.digest,
            place=place,
        ),
        history=_HISTORY.validate_json(row.history),
    )
