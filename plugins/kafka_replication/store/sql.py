"""`WatermarkStore` in SQL. What may change is decided by the pure functions of `kafka_replication.watermarks.store`.

Every write reads its row locked (SQLite: BEGIN IMMEDIATE locks the file; PostgreSQL: SELECT ... FOR UPDATE), decides,
writes. A row that is not there yet cannot be locked: two inserting at once make one of them decide again on the other's
row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from sqlalchemy import Connection, func, select, update
from sqlalchemy.exc import IntegrityError, ProgrammingError

from kafka_replication.model.errors import BadInput, Refused
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.times import EPOCH, floor_millis, from_millis
from kafka_replication.store import boundaries, connect, rows, schema
from kafka_replication.watermarks.boundaries import BoundaryKey
from kafka_replication.watermarks.rules import lost, settle, settle_lease, settle_restored
from kafka_replication.watermarks.values import RUN_STATES, Lease, RangeOutcome, RunRecord, Watermark

T = TypeVar("T")


class SqlStore:
    """A `WatermarkStore` at an SQLAlchemy url.

    Holds no connection between calls, so it is safe in threads and across forks.
    """

    def __init__(self, url: str) -> None:
        self._url = connect.parse(url)
        self._reader = connect.connect(self._url)
        self._writer = connect.for_writing(self._reader)
        with connect.speaking(self._url):
            connect.use_wal(self._reader)
            if not self._read(schema.is_current):
                self._upgrade()

    def __repr__(self) -> str:
        return f"<{connect.describe(self._url)}>"

    def close(self) -> None:
        self._reader.dispose()

    # Watermarks

    def watermarks(self, replication: str) -> dict[PartitionKey, Watermark]:
        query = select(schema.watermarks).where(schema.watermarks.c.replication == replication)
        marks = self._read(lambda db: [rows.watermark_of(row) for row in db.execute(query)])
        return {mark.key: mark for mark in marks}

    def history(self, key: PartitionKey) -> list[Watermark]:
        query = rows.of_key(schema.history, key).order_by(schema.history.c.version)
        return self._read(lambda db: [rows.watermark_of(row) for row in db.execute(query)])

    def advance(
        self,
        key: PartitionKey,
        *,
        generation: int,
        source_topic_id: str,
        target_topic_id: str,
        offset: int,
        expected_version: int | None,
        run_id: str,
    ) -> Watermark:
        wanted = Watermark(key, generation, source_topic_id, target_topic_id, offset, 1, EPOCH, run_id)
        return self._move(wanted, lambda stored, wanted: settle(stored, wanted, expected_version))

    def restore(
        self,
        key: PartitionKey,
        *,
        generation: int,
        source_topic_id: str,
        target_topic_id: str,
        offset: int,
        expected_version: int | None,
        run_id: str,
    ) -> Watermark:
        wanted = Watermark(key, generation, source_topic_id, target_topic_id, offset, 1, EPOCH, run_id)
        return self._move(wanted, lambda stored, wanted: settle_restored(stored, wanted, expected_version))

    def _move(self, wanted: Watermark, decide: Callable[[Watermark | None, Watermark], Watermark]) -> Watermark:
        def move(db: Connection) -> Watermark:
            row = db.execute(rows.of_key(schema.watermarks, wanted.key).with_for_update()).one_or_none()
            stored = rows.watermark_of(row) if row else None
            settled = decide(stored, replace(wanted, updated_at=from_millis(connect.clock(db))))
            if settled is not stored:
                rows.put_watermark(db, settled, is_new=stored is None)
            return settled

        return self._write(move)

    # Leases

    def acquire_lease(self, replication: str, owner: str, duration_seconds: float) -> Lease:
        millis = rows.millis(duration_seconds)

        def acquire(db: Connection) -> Lease:
            stored, held = rows.locked_lease(db, replication)
            now = connect.clock(db)
            wanted = Lease(replication, owner, from_millis(now), from_millis(now + millis), 1)
            settled = settle_lease(stored, held, wanted, from_millis(now))
            rows.put_lease(db, settled, held=True, is_new=stored is None)
            return settled

        return self._write(acquire)

    def renew_lease(self, lease: Lease, duration_seconds: float) -> Lease:
        millis = rows.millis(duration_seconds)

        def renew(db: Connection) -> Lease:
            stored, held = rows.locked_lease(db, lease.replication)
            if stored is None or not held or not _same_hold(stored, lease):
                raise lost(lease, stored if held else None)
            until = from_millis(connect.clock(db) + millis)
            renewed = Lease(stored.replication, stored.owner, stored.acquired_at, until, stored.token)
            rows.put_lease(db, renewed, held=True, is_new=False)
            return renewed

        return self._write(renew)

    def release_lease(self, lease: Lease) -> None:
        def release(db: Connection) -> None:
            stored, held = rows.locked_lease(db, lease.replication)
            if stored is not None and held and _same_hold(stored, lease):
                rows.put_lease(db, stored, held=False, is_new=False)

        self._write(release)

    def lease_of(self, replication: str) -> Lease | None:
        table = schema.leases
        query = select(table).where(table.c.replication == replication, table.c.held)

        def current(db: Connection) -> Lease | None:
            row = db.execute(query).one_or_none()
            return rows.lease_of(row) if row and row.expires_at > connect.clock(db) else None

        return self._read(current)

    # Runs

    def start_run(
        self, run_id: str, replication: str, kind: str, plan_json: str, *, instead_of: str | None = None
    ) -> RunRecord:
        def start(db: Connection) -> RunRecord:
            stored = rows.run_of(db, run_id)
            if stored is None:
                stored = RunRecord(run_id, replication, kind, "planned", plan_json, from_millis(connect.clock(db)))
                rows.add_run(db, stored)
            if (stored.replication, stored.kind) != (replication, kind):
                raise Refused(
                    f"run id {run_id} belongs to a {stored.kind} run of {stored.replication}, not to a {kind} run of"
                    f" {replication}",
                    "make run ids unique, such as by putting the DAG id in front of Airflow's run id",
                )
            if instead_of is not None and stored.plan == instead_of:
                stored = replace(stored, plan=plan_json)
                db.execute(update(schema.runs).where(schema.runs.c.run_id == run_id).values(plan=plan_json))
            return stored

        return self._write(start)

    def run(self, run_id: str) -> RunRecord | None:
        return self._read(lambda db: rows.run_of(db, run_id))

    def runs(self, replication: str, limit: int = 50) -> list[RunRecord]:
        table = schema.runs
        query = select(table).where(table.c.replication == replication).order_by(table.c.sequence.desc()).limit(limit)
        return self._read(lambda db: [rows.run_record(row) for row in db.execute(query)])

    def finish_run(self, run_id: str, state: str) -> RunRecord:
        if state not in RUN_STATES:
            raise ValueError(f"a run's state is one of {', '.join(RUN_STATES)}, not {state!r}")

        def finish(db: Connection) -> RunRecord:
            table, now = schema.runs, connect.clock(db)
            db.execute(update(table).where(table.c.run_id == run_id).values(state=state, finished_at=now))
            stored = rows.run_of(db, run_id)
            if stored is None:
                raise BadInput(f"run {run_id} was never started in this store", "check the run id and the store's url")
            return stored

        return self._write(finish)

    # Outcomes

    def record_outcome(self, outcome: RangeOutcome) -> None:
        def record(db: Connection) -> None:
            run = rows.run_of(db, outcome.run_id)
            if run is None or run.replication != outcome.key.replication:
                raise BadInput(
                    f"run {outcome.run_id} was not started for {outcome.key.replication}",
                    "start the run before its ranges",
                )
            rows.put_outcome(db, outcome, connect.clock(db))

        self._write(record)

    def outcomes(self, run_id: str) -> list[RangeOutcome]:
        columns = schema.outcomes.c
        order = (
            columns.source_topic,
            columns.source_partition,
            columns.target_topic,
            columns.from_offset,
            columns.until_offset,
        )
        query = select(schema.outcomes).where(columns.run_id == run_id).order_by(*order)
        return self._read(lambda db: [rows.outcome_of(row) for row in db.execute(query)])

    def last_verified(self, replication: str) -> dict[PartitionKey, datetime]:
        columns = schema.outcomes.c
        key = (columns.replication, columns.source_topic, columns.source_partition, columns.target_topic)
        query = select(*key, func.max(columns.verified_at).label("latest")).group_by(*key)
        query = query.where(columns.replication == replication, columns.verified_at.is_not(None))
        return self._read(lambda db: {rows.key_of(row): from_millis(row.latest) for row in db.execute(query)})

    # Boundaries

    def settle_boundaries(
        self,
        replication: str,
        moment: datetime,
        found: Mapping[BoundaryKey, int],
        copied: Mapping[BoundaryKey, int | None] = {},
    ) -> dict[BoundaryKey, int]:
        return self._write(lambda db: boundaries.settle(db, replication, floor_millis(moment), found, copied))

    def newest_boundary(self, replication: str) -> datetime | None:
        time = self._read(lambda db: boundaries.newest(db, replication))
        return None if time is None else from_millis(time)

    # Transactions

    def _read(self, read: Callable[[Connection], T]) -> T:
        with connect.speaking(self._url), self._reader.begin() as db:
            return read(db)

    def _write(self, write: Callable[[Connection], T]) -> T:
        """Run ``write`` in a transaction; again when somebody inserted the same row first, which it then finds."""
        for _ in range(2):
            try:
                return self._write_once(write)
            except IntegrityError:
                continue
        return self._write_once(write)

    def _write_once(self, write: Callable[[Connection], T]) -> T:
        with connect.speaking(self._url), self._writer.begin() as db:
            connect.limit_waits(db)
            return write(db)

    def _upgrade(self) -> None:
        try:
            self._write_once(schema.upgrade)
        except ProgrammingError as problem:
            raise connect.refused_schema(problem, self._url) from None


def _same_hold(stored: Lease, lease: Lease) -> bool:
    return (stored.owner, stored.token) == (lease.owner, lease.token)
