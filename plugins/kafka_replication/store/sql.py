"""`WatermarkStore` in SQL. The pure functions of `kafka_replication.watermarks.rules` decide what may change.

Every write locks and reads its row (SQLite: BEGIN IMMEDIATE locks the file; PostgreSQL: SELECT ... FOR UPDATE),
decides, and writes. A missing row cannot be locked: if two transactions insert it at once, one of them fails,
reads the other's row and decides again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Connection, select, update
from sqlalchemy.exc import IntegrityError, ProgrammingError

from kafka_replication.alerting.values import Alert, Decide, Decision, OpenCause
from kafka_replication.documents import StatusRow
from kafka_replication.model.errors import BadInput, Busy, Refused
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.times import floor_millis, from_millis
from kafka_replication.store import connect, schema
from kafka_replication.store.tables import (
    alerts,
    boundaries,
    failed,
    leases,
    retention,
    rows,
    run_liveness,
    sight,
    watermarks,
)
from kafka_replication.store.tables import totals as sums
from kafka_replication.store.waiting import Outage
from kafka_replication.watermarks.boundaries import BoundaryKey
from kafka_replication.watermarks.failed import FailedRow
from kafka_replication.watermarks.sight import CopiedRange, Facts, Lag, Look, PastAlert, Sample, Seen, Totals, Work
from kafka_replication.watermarks.topics import TargetTopics
from kafka_replication.watermarks.values import (
    RUN_STATES,
    Claim,
    Lease,
    RangeOutcome,
    RunRecord,
    Watermark,
    WatermarkChange,
)

T = TypeVar("T")


class SqlStore:
    """A `WatermarkStore` at an SQLAlchemy url.

    Holds no connection between calls, so it is safe in threads and across forks.
    """

    def __init__(self, url: str, log_level: int = logging.INFO) -> None:
        """``log_level`` is the level at which it logs that it created or changed the tables."""
        self._url, self._log_level = connect.parse(url), log_level
        self._reader = connect.connect(self._url)
        self._writer = connect.for_writing(self._reader)
        self._outage = Outage()
        # A file that cannot be opened at the beginning is no outage: nothing restarts it.
        self._open() if self._url.get_backend_name() == "sqlite" else self._outage.outlast(self._open)

    def __repr__(self) -> str:
        return f"<{connect.describe(self._url)}>"

    def close(self) -> None:
        self._reader.dispose()

    # Watermarks

    def watermarks(self, replication: str) -> dict[PartitionKey, Watermark]:
        return self._read(lambda db: watermarks.of_replication(db, replication))

    def history(self, key: PartitionKey) -> list[Watermark]:
        return self._read(lambda db: watermarks.history_of(db, key))

    def advance_many(self, changes: Collection[WatermarkChange]) -> dict[PartitionKey, Watermark | Refused]:
        by_key = {change.key: change for change in changes}
        results: dict[PartitionKey, Watermark | Refused] = {}
        # First read without a lock: most partitions of most runs do not change, and an idle run writes nothing.
        results |= self._read(lambda db: watermarks.unchanged(db, by_key))
        changed = {key: change for key, change in by_key.items() if key not in results}
        return results | self._write(lambda db: watermarks.advance(db, changed)) if changed else results

    def restore_many(self, changes: Collection[WatermarkChange]) -> dict[PartitionKey, Watermark]:
        by_key = {change.key: change for change in changes}
        return self._write(lambda db: watermarks.restore(db, by_key)) if by_key else {}

    # Leases

    def acquire_lease(self, claim: Claim, duration_seconds: float) -> Lease:
        duration = leases.in_millis(duration_seconds)
        decided = self._write(lambda db: leases.acquire(db, claim, duration))
        if isinstance(decided, Busy):
            raise decided
        return decided

    def renew_lease(self, lease: Lease, duration_seconds: float) -> Lease:
        duration = leases.in_millis(duration_seconds)
        return self._write(lambda db: leases.renew(db, lease, duration))

    def narrow_lease(self, lease: Lease, topics: TargetTopics, duration_seconds: float) -> Lease:
        duration = leases.in_millis(duration_seconds)
        return self._write(lambda db: leases.renew(db, lease, duration, topics))

    def give_way(self, lease: Lease, duration_seconds: float) -> bool:
        duration = leases.in_millis(duration_seconds)
        return self._write(lambda db: leases.give_way(db, lease, duration))

    def hand_over_lease(self, lease: Lease, reserved_seconds: float, expected_seconds: float) -> None:
        reserved, expected = leases.in_millis(reserved_seconds), leases.in_millis(expected_seconds)
        self._write(lambda db: leases.hand_over(db, lease, reserved, expected))

    def release_lease(self, lease: Lease) -> None:
        self._write(lambda db: leases.release(db, lease))

    def leave_queue(self, claim: Claim) -> None:
        self._write(lambda db: leases.leave_queue(db, claim))

    def leases(self, replication: str) -> list[Lease]:
        return self._read(lambda db: leases.current(db, replication))

    # Runs

    def start_run(
        self, run_id: str, replication: str, kind: str, plan_json: str, *, instead_of: str | None = None
    ) -> RunRecord:
        def start(db: Connection) -> RunRecord:
            stored = rows.run_of(db, run_id)
            if stored is None:
                stored = RunRecord(
                    run_id=run_id,
                    replication=replication,
                    kind=kind,
                    state="planned",
                    plan=plan_json,
                    created_at=from_millis(connect.clock(db)),
                )
                rows.add_run(db, stored)
            if (stored.replication, stored.kind) != (replication, kind):
                raise Refused(
                    f"run id {run_id} belongs to a {stored.kind} run of {stored.replication}, not to a {kind} run of"
                    f" {replication}",
                    "make run ids unique, such as by putting the DAG id in front of Airflow's run id",
                )
            if instead_of is not None and stored.plan == instead_of:
                anew: dict[str, Any] = {"plan": plan_json, "state": "planned", "finished_at": None, "progress": None}
                stored = replace(stored, **anew)
                db.execute(update(schema.runs).where(schema.runs.c.run_id == run_id).values(**anew))
            return _seen(db, [stored])[0]

        return self._write(start)

    def run(self, run_id: str) -> RunRecord | None:
        def read(db: Connection) -> RunRecord | None:
            stored = rows.run_of(db, run_id)
            return _seen(db, [stored])[0] if stored else None

        return self._read(read)

    def runs(self, replication: str, limit: int = 50) -> list[RunRecord]:
        table = schema.runs
        query = select(table).where(table.c.replication == replication).order_by(table.c.sequence.desc()).limit(limit)
        return self._read(lambda db: _seen(db, [rows.run_record(row) for row in db.execute(query)]))

    def record_progress(self, run_id: str, progress_json: str) -> None:
        statement = update(schema.runs).where(schema.runs.c.run_id == run_id).values(progress=progress_json)
        self._write(lambda db: db.execute(statement))

    def finish_run(self, run_id: str, state: str) -> RunRecord:
        if state not in RUN_STATES:
            raise ValueError(f"a run's state is one of {', '.join(RUN_STATES)}, not {state!r}")

        def finish(db: Connection) -> RunRecord:
            table, now = schema.runs, connect.clock(db)
            stored = rows.run_of(db, run_id)
            if stored is None:
                raise BadInput(f"run {run_id} was never started in this store", "check the run id and the store's url")
            db.execute(update(table).where(table.c.run_id == run_id).values(state=state, finished_at=now))
            if stored.state != state:
                sums.add_end(db, stored.replication, {run_id: stored.kind}, state)
            return replace(stored, state=state, finished_at=from_millis(now))

        return self._write(finish)

    # Outcomes

    def record_outcomes(self, outcomes: Collection[RangeOutcome]) -> None:
        def record(db: Connection) -> None:
            for run_id, replication in sorted({(outcome.run_id, outcome.key.replication) for outcome in outcomes}):
                run = rows.run_of(db, run_id)
                if run is None or run.replication != replication:
                    raise BadInput(
                        f"run {run_id} was not started for {replication} in this store",
                        "check the store's url, then start a new run",
                    )
            rows.put_outcomes(db, outcomes, connect.clock(db))

        if outcomes:
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

    # Failed records

    def record_failed(self, rows: Collection[FailedRow]) -> None:
        if rows:
            self._write(lambda db: failed.record(db, rows))

    def failed(self, replication: str) -> list[FailedRow]:
        return self._read(lambda db: failed.of_replication(db, replication))

    # Retention

    def prune(self, replication: str, older_than_seconds: float) -> int:
        deleted = 0
        for _ in range(retention.BATCHES):
            batch = self._write(lambda db: retention.prune(db, replication, round(older_than_seconds * 1000)))
            deleted += batch
            if not batch:
                break
        return deleted

    # Boundaries

    def store_boundaries(
        self,
        replication: str,
        moment: datetime,
        resolved: Mapping[BoundaryKey, int],
        copied: Mapping[BoundaryKey, int | None] = {},
    ) -> dict[BoundaryKey, int]:
        return self._write(lambda db: boundaries.store(db, replication, floor_millis(moment), resolved, copied))

    def newest_boundary(self, replication: str) -> datetime | None:
        time = self._read(lambda db: boundaries.newest(db, replication))
        return None if time is None else from_millis(time)

    # Alerts

    def open_causes(self, replication: str) -> list[OpenCause]:
        return self._read(lambda db: alerts.open_causes(db, replication))

    def update_causes(self, replication: str, decide: Decide) -> Decision:
        decided: Decision | None = None  # by an attempt whose commit may or may not have come about

        def update(db: Connection) -> Decision:
            nonlocal decided
            decided = alerts.update_causes(db, replication, decide, decided)
            return decided

        return self._write(update)

    def take_back_alerts(self, replication: str, untold: Collection[Alert]) -> None:
        self._write(lambda db: alerts.take_back(db, replication, untold))

    def record_look(self, replication: str, paused: bool) -> None:
        self._write(lambda db: alerts.record_look(db, replication, paused))

    def last_look(self, replication: str) -> Look | None:
        return self._read(lambda db: alerts.last_look(db, replication))

    # What a page shows

    def record_standing(self, replication: str, facts: Facts, lag: Lag, partitions: Sequence[StatusRow]) -> None:
        self._write(lambda db: sight.record_standing(db, replication, facts, lag, partitions))

    def record_facts(self, replication: str, facts: Facts) -> None:
        self._write(lambda db: sight.record_facts(db, replication, facts))

    def record_work(self, replication: str, facts: Facts, work: Work) -> None:
        self._write(lambda db: sight.record_work(db, replication, facts, work))

    def add_totals(self, replication: str, totals: Totals, run_id: str, mark: float) -> None:
        if totals:
            self._write(lambda db: sums.add_once(db, replication, totals, run_id, mark))

    def totals(self) -> dict[str, Totals]:
        return self._read(sums.of_all)

    def front(self, names: Collection[str] | None = None) -> list[Seen]:
        return self._read(lambda db: sight.front(db, names))

    def standing_partitions(self, replication: str) -> list[StatusRow]:
        return self._read(lambda db: sight.partitions(db, replication))

    def samples(self, replication: str, since: datetime) -> list[Sample]:
        return self._read(lambda db: sight.samples(db, replication, since))

    def runs_before(self, replication: str, before: int | None, limit: int) -> list[tuple[int, RunRecord]]:
        return self._read(lambda db: sight.runs(db, replication, before, limit))

    def copied_ranges(self, key: PartitionKey, limit: int) -> list[CopiedRange]:
        return self._read(lambda db: sight.copied(db, key, limit))

    def failed_page(self, replication: str, states: Collection[str], limit: int) -> list[FailedRow]:
        return self._read(lambda db: failed.in_states(db, replication, states, limit))

    def past_alerts(self, replication: str, limit: int) -> list[PastAlert]:
        return self._read(lambda db: sight.past(db, replication, limit))

    # Transactions

    def _read(self, read: Callable[[Connection], T]) -> T:
        return self._outage.outlast(lambda: self._read_once(read))

    def _read_once(self, read: Callable[[Connection], T]) -> T:
        with connect.translate_db_errors(self._url), self._reader.begin() as db:
            return read(db)

    def _write(self, write: Callable[[Connection], T]) -> T:
        """Run ``write`` in a transaction. Repeat it if another transaction inserted the same row first, or if the store
        was away, even if the result of the commit is unknown.
        """
        return self._outage.outlast(lambda: self._write_first(write))

    def _write_first(self, write: Callable[[Connection], T]) -> T:
        for _ in range(2):
            try:
                return self._write_once(write)
            except IntegrityError:
                continue
        return self._write_once(write)

    def _write_once(self, write: Callable[[Connection], T]) -> T:
        with connect.translate_db_errors(self._url), self._writer.begin() as db:
            connect.limit_waits(db)
            return write(db)

    def _open(self) -> None:
        with connect.translate_db_errors(self._url):
            connect.use_wal(self._reader)
            if not self._read_once(schema.is_current):
                self._create()

    def _create(self) -> None:
        try:
            self._write_once(lambda db: schema.create(db, self._log_level))
        except ProgrammingError as problem:
            raise connect.refused_schema(connect.scrubbed(problem.orig, self._url), self._url) from None


def _seen(db: Connection, runs: Sequence[RunRecord]) -> list[RunRecord]:
    """The same runs of one replication with their ``alive``."""
    stored = leases.of_replication(db, runs[0].replication) if any(run.state == "planned" for run in runs) else []
    return run_liveness.seen(db, runs, stored) if runs else []
