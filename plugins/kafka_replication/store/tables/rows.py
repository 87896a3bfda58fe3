"""Converts rows of the store's tables to and from the domain's values; builds queries by key."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, Row, Select, Table, and_, insert, select

from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.model.times import floor_millis, from_millis
from kafka_replication.store import schema
from kafka_replication.watermarks.values import RangeOutcome, RunRecord

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite


def key_values(key: PartitionKey) -> dict[str, Any]:
    return {
        "replication": key.replication,
        "source_topic": key.source.topic,
        "source_partition": key.source.partition,
        "target_topic": key.target_topic,
    }


def key_of(row: Row[*tuple[Any, ...]]) -> PartitionKey:
    return PartitionKey(row.replication, TopicPartition(row.source_topic, row.source_partition), row.target_topic)


def is_key(table: Table, key: PartitionKey) -> ColumnElement[bool]:
    return and_(*(table.c[name] == value for name, value in key_values(key).items()))


def of_key(table: Table, key: PartitionKey) -> Select[Any]:
    return select(table).where(is_key(table, key))


def run_of(db: Connection, run_id: str) -> RunRecord | None:
    row = db.execute(select(schema.runs).where(schema.runs.c.run_id == run_id)).one_or_none()
    return run_record(row) if row else None


def run_record(row: Row[Any], plan: str | None = None) -> RunRecord:
    """``plan`` stands for a column that was not read."""
    return RunRecord(
        run_id=row.run_id,
        replication=row.replication,
        kind=row.kind,
        state=row.state,
        plan=row.plan if plan is None else plan,
        created_at=from_millis(row.created_at),
        finished_at=None if row.finished_at is None else from_millis(row.finished_at),
        progress=row.progress,
    )


def add_run(db: Connection, run: RunRecord) -> None:
    db.execute(
        insert(schema.runs).values(
            run_id=run.run_id,
            replication=run.replication,
            kind=run.kind,
            state=run.state,
            plan=run.plan,
            created_at=floor_millis(run.created_at),
        )
    )


def replacing_insert(db: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    """A statement that can replace rows which exist. Loads only what this kind of database needs."""
    if db.dialect.name == "sqlite":
        from sqlalchemy.dialects.sqlite import insert

        return insert(table)
    from sqlalchemy.dialects.postgresql import insert as insert_into_postgresql

    return insert_into_postgresql(table)


def put_outcomes(db: Connection, outcomes: Collection[RangeOutcome], now: int) -> None:
    """Insert or replace, in one statement; ``now`` in milliseconds."""
    table = schema.outcomes
    statement = replacing_insert(db, table)
    values = [_outcome_values(outcome, now) for outcome in outcomes]
    key = [column.name for column in table.primary_key.columns]
    others = {name: statement.excluded[name] for name in values[0] if name not in key}
    db.execute(statement.on_conflict_do_update(index_elements=key, set_=others), values)


def _outcome_values(outcome: RangeOutcome, now: int) -> dict[str, Any]:
    return key_values(outcome.key) | {
        "run_id": outcome.run_id,
        "from_offset": outcome.range.from_,
        "until_offset": outcome.range.until,
        "copied": outcome.copied,
        "not_visible": outcome.not_visible,
        "digest_ok": outcome.digest_ok,
        "level": outcome.level,
        "watermark": outcome.watermark,
        "error": outcome.error,
        "remedy": outcome.remedy,
        "seconds": outcome.seconds,
        "bytes": outcome.bytes,
        "recorded_at": now,
    }


def outcome_of(row: Row[Any]) -> RangeOutcome:
    return RangeOutcome(
        run_id=row.run_id,
        key=key_of(row),
        range=OffsetRange(row.from_offset, row.until_offset),
        copied=row.copied,
        not_visible=row.not_visible,
        digest_ok=row.digest_ok,
        level=row.level,
        watermark=row.watermark,
        error=row.error,
        remedy=row.remedy,
        seconds=row.seconds,
        bytes=row.bytes,
        recorded_at=from_millis(row.recorded_at),
    )
