"""Rows of the store's tables to and from the domain's values; queries by key."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, Table, and_, insert, select, update

from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.model.times import floor_millis, from_millis
from kafka_replication.store import schema
from kafka_replication.watermarks.values import Lease, RangeOutcome, RunRecord, Watermark


def millis(seconds: float) -> int:
    """A lease's duration. Raises ValueError for none."""
    if seconds <= 0:
        raise ValueError(f"a lease lasts more than 0 s, not {seconds:g} s")
    return max(1, round(seconds * 1000))


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


def watermark_of(row: Row[Any]) -> Watermark:
    return Watermark(
        key_of(row),
        row.generation,
        row.source_topic_id,
        row.target_topic_id,
        row.next_offset,
        row.version,
        from_millis(row.updated_at),
        row.run_id,
    )


def put_watermark(db: Connection, mark: Watermark, *, is_new: bool) -> None:
    """Store the change, and keep it in the history."""
    values = key_values(mark.key) | {
        "generation": mark.generation,
        "source_topic_id": mark.source_topic_id,
        "target_topic_id": mark.target_topic_id,
        "next_offset": mark.offset,
        "version": mark.version,
        "updated_at": floor_millis(mark.updated_at),
        "run_id": mark.run_id,
    }
    table = schema.watermarks
    db.execute(insert(table).values(values) if is_new else update(table).where(is_key(table, mark.key)).values(values))
    db.execute(insert(schema.history).values(values))


def lease_of(row: Row[Any]) -> Lease:
    return Lease(row.replication, row.owner, from_millis(row.acquired_at), from_millis(row.expires_at), row.token)


def locked_lease(db: Connection, replication: str) -> tuple[Lease | None, bool]:
    """The last lease of a replication, and whether it is held (not given back); nobody else can change it meanwhile."""
    table = schema.leases
    row = db.execute(select(table).where(table.c.replication == replication).with_for_update()).one_or_none()
    return (lease_of(row), row.held) if row else (None, False)


def put_lease(db: Connection, lease: Lease, *, held: bool, is_new: bool) -> None:
    values = {
        "replication": lease.replication,
        "owner": lease.owner,
        "held": held,
        "acquired_at": floor_millis(lease.acquired_at),
        "expires_at": floor_millis(lease.expires_at),
        "token": lease.token,
    }
    table = schema.leases
    db.execute(
        insert(table).values(values)
        if is_new
        else update(table).where(table.c.replication == lease.replication).values(values)
    )


def run_of(db: Connection, run_id: str) -> RunRecord | None:
    row = db.execute(select(schema.runs).where(schema.runs.c.run_id == run_id)).one_or_none()
    return run_record(row) if row else None


def run_record(row: Row[Any]) -> RunRecord:
    finished = None if row.finished_at is None else from_millis(row.finished_at)
    return RunRecord(row.run_id, row.replication, row.kind, row.state, row.plan, from_millis(row.created_at), finished)


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


def put_outcome(db: Connection, outcome: RangeOutcome, now: int) -> None:
    """Insert or replace; ``now`` (milliseconds) also becomes the time of verification if ``digest_ok``."""
    values = key_values(outcome.key) | {
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
    if outcome.digest_ok:  # a later copy of the same range does not take back when it was verified
        values["verified_at"] = now
    table = schema.outcomes
    names = [column.name for column in table.primary_key.columns]
    is_this = and_(*(table.c[name] == values[name] for name in names))
    if not db.execute(update(table).where(is_this).values(values)).rowcount:
        db.execute(insert(table).values(values))


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
