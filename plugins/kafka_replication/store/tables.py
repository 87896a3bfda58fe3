"""The table of watermarks. Reads and moves many partitions in one transaction.

The table of boundaries: the offset of a time in each partition. The first caller stores it.

The table of failed records: one row for each record that was set aside, as `watermarks.failed` makes it.

Sums that only grow, for metrics. They are not pruned: a replication has a dozen of them, however long it runs.

Builds the conditions, rows and statements that several tables of the store share.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Table,
    and_,
    delete,
    func,
    insert,
    or_,
    select,
    tuple_,
    update,
)

from kafka_replication.ledger.entries import FailedRecord, Place
from kafka_replication.model.errors import Refused
from kafka_replication.model.offsets import PartitionKey, TopicPartition
from kafka_replication.model.times import floor_millis, from_millis
from kafka_replication.runtime.private_json import deferred
from kafka_replication.store import connect, schema
from kafka_replication.store.database import Database, reads, writes
from kafka_replication.store.schema import boundaries
from kafka_replication.watermarks.failed import FailedId, FailedRow, Step
from kafka_replication.watermarks.rules import BoundaryKey, decide_boundary
from kafka_replication.watermarks.sight import FAILED, RANGES, RUNS, VERIFIED, Total, Totals
from kafka_replication.watermarks.values import Watermark, WatermarkChange, decide_advance, decide_restore

_c = boundaries.c
_KEY = (_c.source_topic, _c.source_partition, _c.source_topic_id)


class Boundaries(Database):
    @reads
    def newest_boundary(self, db: Connection, replication: str) -> datetime | None:
        """The latest moment that has a boundary in any partition."""
        time: int | None = db.execute(select(func.max(_c.time)).where(_c.replication == replication)).scalar()
        return None if time is None else from_millis(time)

    @writes
    def store_boundaries(
        self,
        db: Connection,
        replication: str,
        moment: datetime,
        resolved: Mapping[BoundaryKey, int],
        copied: Mapping[BoundaryKey, int | None] = {},
    ) -> dict[BoundaryKey, int]:
        """The offset of ``moment`` in each partition of ``resolved``. The first call stores it by the rule of
        `decide_boundary`, with few statements; it never changes.
        """
        time = floor_millis(moment)
        stored = _offsets(db, replication, _c.time == time, func.max(_c.next_offset))
        new = sorted(resolved.keys() - stored.keys())
        if new:
            before = _offsets(db, replication, _c.time < time, func.max(_c.next_offset))
            after = _offsets(db, replication, _c.time > time, func.min(_c.next_offset))
            for key in new:
                stored[key] = decide_boundary(resolved[key], before.get(key), after.get(key), copied.get(key))
            db.execute(
                insert(boundaries),
                [
                    {
                        "replication": replication,
                        "source_topic": key.at.topic,
                        "source_partition": key.at.partition,
                        "source_topic_id": key.topic_id,
                        "time": time,
                        "next_offset": stored[key],
                    }
                    for key in new
                ],
            )
        return {key: stored[key] for key in resolved}


def _offsets(
    db: Connection, replication: str, when: ColumnElement[bool], which: ColumnElement[int]
) -> dict[BoundaryKey, int]:
    query = select(*_KEY, which.label("next_offset")).where(_c.replication == replication, when).group_by(*_KEY)
    return {
        BoundaryKey(TopicPartition(row.source_topic, row.source_partition), row.source_topic_id): row.next_offset
        for row in db.execute(query)
    }


def key_values(key: PartitionKey) -> dict[str, Any]:
    return {
        "replication": key.replication,
        "source_topic": key.source.topic,
        "source_partition": key.source.partition,
        "target_topic": key.target_topic,
    }


def key_of(row: Row[*tuple[Any, ...]]) -> PartitionKey:
    return PartitionKey(row.replication, TopicPartition(row.source_topic, row.source_partition), row.target_topic)


def is_row(table: Table, values: Mapping[str, Any]) -> ColumnElement[bool]:
    """The condition that these columns have these values."""
    return and_(*(table.c[name] == value for name, value in values.items()))


def put(
    db: Connection, table: Table, rows: Sequence[Mapping[str, Any]], changes: Callable[[Any], Mapping[str, Any]]
) -> None:
    """Insert these rows in one statement; ``changes`` are those of a row that exists, from the columns of the new one.
    Loads only what this kind of database needs.
    """
    if not rows:
        return
    if db.dialect.name == "sqlite":
        from sqlalchemy.dialects.sqlite import insert
    else:
        from sqlalchemy.dialects.postgresql import insert  # type: ignore[assignment]
    statement, key = insert(table), [column.name for column in table.primary_key.columns]
    db.execute(statement.on_conflict_do_update(index_elements=key, set_=dict(changes(statement.excluded))), list(rows))


def replace(db: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert these rows in one statement, in place of those that exist."""
    others = [column.name for column in table.columns if rows and column.name in rows[0] and not column.primary_key]
    put(db, table, rows, lambda new: {name: new[name] for name in others})


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


_totals, _outcomes = schema.totals, schema.outcomes
# The name of a row that is no sum: the number of the call that added for a run last, so that a call that is repeated
# after an unknown outcome adds nothing. It goes when the run ends.
_MARK = ""


class Sums(Database):
    def add_totals(self, replication: str, totals: Totals, run_id: str, mark: float) -> None:
        """Add these numbers of a run to the sums of the replication. ``mark`` is another number in each call: one that
        is repeated with the same one adds nothing.
        """

        def add_once(db: Connection) -> None:
            where = (_totals.c.replication == replication, _totals.c.name == _MARK, _totals.c.kind == run_id)
            if db.execute(select(_totals.c.value).where(*where)).scalar() == mark:
                return
            _add(db, replication, totals)
            db.execute(delete(_totals).where(*where))
            db.execute(insert(_totals).values(replication=replication, name=_MARK, kind=run_id, outcome="", value=mark))

        if totals:
            self._write(add_once)

    @reads
    def totals(self, db: Connection) -> dict[str, Totals]:
        """The sums of each replication since this store was made. ``runs`` and ``ranges`` are those that ended: the
        store adds them itself when the state of a run changes to that of an end. A range is counted once in
        a run as failed, and once as verified.
        """
        found = defaultdict[str, dict[Total, float]](dict)
        for row in db.execute(select(_totals).where(_totals.c.name != _MARK)):
            found[row.replication][Total(row.name, row.kind, row.outcome)] = row.value
        return dict(found)


def add_end(db: Connection, replication: str, ended: Mapping[str, str], state: str) -> None:
    """Count runs that have ended in this state, and their ranges. ``ended`` has the kind of each run by its id. A range
    is counted once as failed and once as verified, however often its run ends.
    """
    sums = {Total(RUNS, kind, state): n for kind, n in Counter(ended.values()).items()}
    failed, counted = _outcomes.c.error.is_not(None), func.coalesce(_outcomes.c.counted, -1)
    for outcome, these, at in ((FAILED, and_(failed, counted < 0), 0), (VERIFIED, and_(~failed, counted < 1), 1)):
        ended_so = update(_outcomes).where(_outcomes.c.run_id.in_(ended), these)
        if n := db.execute(ended_so.values(counted=at)).rowcount:
            sums[Total(RANGES, outcome=outcome)] = n
    _add(db, replication, sums)
    forget_totals(db, ended)


def forget_totals(db: Connection, run_ids: Collection[str]) -> None:
    """Delete the marks of these runs, which are over."""
    db.execute(delete(_totals).where(_totals.c.name == _MARK, _totals.c.kind.in_(run_ids)))


def _add(db: Connection, replication: str, totals: Totals) -> None:
    rows = [
        {"replication": replication, "name": total.name, "kind": total.kind, "outcome": total.outcome, "value": value}
        for total, value in totals.items()
    ]
    put(db, _totals, rows, lambda new: {"value": _totals.c.value + new.value})


KEYS_AT_ONCE = 200  # 4 values each; SQLite before 3.32 takes 999 in a statement

Changes = Mapping[PartitionKey, WatermarkChange]
Results = dict[PartitionKey, Watermark | Refused]
_marks = schema.watermarks
_AS_IN_ROW = ("generation", "source_topic_id", "target_topic_id", "version", "run_id")


class Watermarks(Database):
    @reads
    def watermarks(self, db: Connection, replication: str) -> dict[PartitionKey, Watermark]:
        query = select(_marks).where(_marks.c.replication == replication)
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
    columns, ordered = [*_marks.primary_key.columns], sorted(keys)
    marks: dict[PartitionKey, Watermark] = {}
    for start in range(0, len(ordered), KEYS_AT_ONCE):
        key_rows = [tuple(key_values(key).values()) for key in ordered[start : start + KEYS_AT_ONCE]]
        query = select(_marks).where(tuple_(*columns).in_(key_rows)).order_by(*columns)
        marks |= {mark.key: mark for mark in map(_watermark, db.execute(query.with_for_update() if lock else query))}
    return marks


def _write(db: Connection, stored: Mapping[PartitionKey, Watermark], marks: Collection[Watermark]) -> None:
    """Store the new and changed watermarks."""
    # Not in place of a row that another transaction has just inserted: then this one decides again.
    if new := [_mark_values(mark) for mark in marks if mark.key not in stored]:
        db.execute(insert(_marks), new)
    changed = [mark for mark in marks if mark.key in stored and mark is not stored[mark.key]]
    replace(db, _marks, [_mark_values(mark) for mark in changed])


def _mark_values(mark: Watermark) -> dict[str, Any]:
    return {
        **key_values(mark.key),
        **{name: getattr(mark, name) for name in _AS_IN_ROW},
        "next_offset": mark.offset,
        "updated_at": floor_millis(mark.updated_at),
    }


def _watermark(row: Row[Any]) -> Watermark:
    as_in_row: dict[str, Any] = {name: getattr(row, name) for name in _AS_IN_ROW}
    return Watermark(key=key_of(row), offset=row.next_offset, updated_at=from_millis(row.updated_at), **as_in_row)
