"""The tables of runs and of the outcomes of their ranges; deletes what is old, in short transactions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace as with_changes
from typing import Any, Final

from sqlalchemy import Connection, Row, and_, delete, insert, or_, select, tuple_, update

from kafka_replication.model.errors import BadInput, Refused
from kafka_replication.model.offsets import OffsetRange, PartitionKey
from kafka_replication.model.times import from_millis
from kafka_replication.store import connect, schema, tables
from kafka_replication.store.database import Database, reads, writes
from kafka_replication.store.leases import with_life
from kafka_replication.store.tables import is_row, key_of, key_values, replace
from kafka_replication.watermarks.failed import OPEN
from kafka_replication.watermarks.sight import CopiedRange
from kafka_replication.watermarks.values import ENDED_WELL, RUN_STATES, RangeOutcome, RunRecord

_runs, _outcomes = schema.runs, schema.outcomes
_OF_RUN: Final = ("run_id", "replication", "kind", "state", "progress")
_COPIED: Final = ("run_id", "copied", "not_visible", "digest_ok", "level", "watermark", "error", "remedy")
_OF_OUTCOME: Final = (*_COPIED, "seconds", "bytes")
WITHOUT_PLAN: Final = tuple(column for column in _runs.c if column.name != "plan")

# With a thousand partitions a batch has 20,000 outcomes, and 20 batches delete the rows of 400 runs.
RUNS_AT_ONCE: Final = 20
RECORDS_AT_ONCE: Final = 5_000
BATCHES: Final = 20
# Airflow may repeat the last task of a run that has just succeeded, and the task reads the plan. A run that is cleared
# later is planned again.
PLAN_MILLIS: Final = 3_600_000


class Runs(Database):
    @writes
    def start_run(
        self,
        db: Connection,
        run_id: str,
        replication: str,
        kind: str,
        plan_json: str,
        *,
        instead_of: str | None = None,
    ) -> RunRecord:
        """Store the run's plan once. A repeated call returns the stored run with the **stored** plan.

        A stored plan that equals ``instead_of`` is replaced, and the run is `planned` again, without progress.

        Raises Refused if the id belongs to another replication or kind.
        """
        stored = _run_of(db, run_id)
        if stored is None:
            values = {"run_id": run_id, "replication": replication, "kind": kind, "state": "planned", "plan": plan_json}
            db.execute(insert(_runs).values(**values, created_at=connect.clock(db)))
            stored = _run_of(db, run_id)
            assert stored is not None
        if (stored.replication, stored.kind) != (replication, kind):
            raise Refused(
                f"run id {run_id} belongs to a {stored.kind} run of {stored.replication}, not to a {kind} run of"
                f" {replication}",
                "make run ids unique, such as by putting the DAG id in front of Airflow's run id",
            )
        if instead_of is not None and stored.plan == instead_of:
            anew: dict[str, Any] = {"plan": plan_json, "state": "planned", "finished_at": None, "progress": None}
            stored = with_changes(stored, **anew)
            db.execute(update(_runs).where(_runs.c.run_id == run_id).values(**anew))
        return with_life(db, [stored])[0]

    @reads
    def run(self, db: Connection, run_id: str) -> RunRecord | None:
        stored = _run_of(db, run_id)
        return with_life(db, [stored])[0] if stored else None

    @reads
    def runs(self, db: Connection, replication: str, limit: int = 50) -> list[RunRecord]:
        """The latest runs, newest first."""
        query = select(_runs).where(_runs.c.replication == replication).order_by(_runs.c.sequence.desc()).limit(limit)
        return with_life(db, map(run_record, db.execute(query)))

    @reads
    def runs_before(
        self, db: Connection, replication: str, before: int | None, limit: int
    ) -> list[tuple[int, RunRecord]]:
        """The runs before the one with this number (None: all), newest first, each with its number. Without plans."""
        query = select(*WITHOUT_PLAN).where(_runs.c.replication == replication)
        query = query if before is None else query.where(_runs.c.sequence < before)
        rows = list(db.execute(query.order_by(_runs.c.sequence.desc()).limit(limit)))
        return [(row.sequence, run) for row, run in zip(rows, with_life(db, map(run_record, rows)), strict=True)]

    @writes
    def record_progress(self, db: Connection, run_id: str, progress_json: str) -> None:
        """Store the progress of the run, in place of the earlier one. Does nothing if the store has no such run."""
        db.execute(update(_runs).where(_runs.c.run_id == run_id).values(progress=progress_json))

    @writes
    def finish_run(self, db: Connection, run_id: str, state: str) -> RunRecord:
        """Store the end of the run. Raises BadInput for an unknown run, ValueError if `RUN_STATES` lacks the state."""
        if state not in RUN_STATES:
            raise ValueError(f"a run's state is one of {', '.join(RUN_STATES)}, not {state!r}")
        now, stored = connect.clock(db), _run_of(db, run_id)
        if stored is None:
            raise BadInput(f"run {run_id} was never started in this store", "check the run id and the store's url")
        db.execute(update(_runs).where(_runs.c.run_id == run_id).values(state=state, finished_at=now))
        if stored.state != state:
            tables.add_end(db, stored.replication, {run_id: stored.kind}, state)
        return with_changes(stored, state=state, finished_at=from_millis(now))

    def record_outcomes(self, outcomes: Collection[RangeOutcome]) -> None:
        """Insert or replace by run, key and range, in one transaction.

        Raises BadInput, and records none, if a run was not started for its outcome's replication.
        """

        def record(db: Connection) -> None:
            for run_id, replication in sorted({(outcome.run_id, outcome.key.replication) for outcome in outcomes}):
                run = _run_of(db, run_id)
                if run is None or run.replication != replication:
                    raise BadInput(
                        f"run {run_id} was not started for {replication} in this store",
                        "check the store's url, then start a new run",
                    )
            now = connect.clock(db)
            values = [
                {
                    **key_values(outcome.key),
                    **{name: getattr(outcome, name) for name in _OF_OUTCOME},
                    "from_offset": outcome.range.from_,
                    "until_offset": outcome.range.until,
                    "recorded_at": now,
                }
                for outcome in outcomes
            ]
            replace(db, _outcomes, values)

        if outcomes:
            self._write(record)

    @reads
    def outcomes(self, db: Connection, run_id: str) -> list[RangeOutcome]:
        """The outcomes of the run, ordered by topic, partition and range."""
        order = ("source_topic", "source_partition", "target_topic", "from_offset", "until_offset")
        query = select(_outcomes).where(_outcomes.c.run_id == run_id).order_by(*(_outcomes.c[name] for name in order))
        return [_outcome(row) for row in db.execute(query)]

    @reads
    def copied_ranges(self, db: Connection, key: PartitionKey, limit: int) -> list[CopiedRange]:
        """The newest ranges of one partition that runs worked on, newest first."""
        query = select(_outcomes, _runs.c.kind).join(_runs, _runs.c.run_id == _outcomes.c.run_id)
        query = query.where(is_row(_outcomes, key_values(key))).order_by(_outcomes.c.recorded_at.desc()).limit(limit)
        return [CopiedRange(_outcome(row), row.kind) for row in db.execute(query)]

    def prune(self, replication: str, older_than_seconds: float) -> int:
        """Delete old rows of the replication in bounded batches. Returns the number of deleted rows.

        Deletes runs that ended longer ago, or were planned longer ago and never ended, with their plans and outcomes.
        Deletes failed records that were retried or discarded longer ago, but never an open one; and samples and past
        alerts. Drops the plan of a run that succeeded, or that a seal refused, an hour after its end. A large backlog
        takes several calls.
        """

        def prune_some(db: Connection) -> int:
            now = connect.clock(db)
            succeeded = _runs.c.replication == replication, _runs.c.state.in_(ENDED_WELL)
            old_plans = and_(*succeeded, _runs.c.plan != "", _runs.c.finished_at < now - PLAN_MILLIS)
            db.execute(update(_runs).where(old_plans).values(plan=""))
            before = now - round(older_than_seconds * 1000)
            deletions = (_delete_runs, _delete_decided, _delete_seen)
            return sum(delete_old(db, replication, before) for delete_old in deletions)

        deleted = 0
        for _ in range(BATCHES):
            some = self._write(prune_some)
            deleted += some
            if not some:
                break
        return deleted


def run_record(row: Row[Any]) -> RunRecord:
    """The run of this row. It has no plan if its column was not read."""
    as_in_row: dict[str, Any] = {name: getattr(row, name) for name in _OF_RUN}
    return RunRecord(
        plan=getattr(row, "plan", ""),
        created_at=from_millis(row.created_at),
        finished_at=None if row.finished_at is None else from_millis(row.finished_at),
        **as_in_row,
    )


def _run_of(db: Connection, run_id: str) -> RunRecord | None:
    row = db.execute(select(_runs).where(_runs.c.run_id == run_id)).one_or_none()
    return run_record(row) if row else None


def _outcome(row: Row[Any]) -> RangeOutcome:
    as_in_row: dict[str, Any] = {name: getattr(row, name) for name in _OF_OUTCOME}
    range_ = OffsetRange(row.from_offset, row.until_offset)
    return RangeOutcome(key=key_of(row), range=range_, recorded_at=from_millis(row.recorded_at), **as_in_row)


def _delete_runs(db: Connection, replication: str, before: int) -> int:
    ended = or_(_runs.c.finished_at.is_(None), _runs.c.finished_at < before)
    query = select(_runs.c.run_id).where(_runs.c.replication == replication, _runs.c.created_at < before, ended)
    old = db.execute(query.order_by(_runs.c.created_at).limit(RUNS_AT_ONCE)).scalars().all()
    if not old:
        return 0
    tables.forget_totals(db, old)
    gone = db.execute(delete(_outcomes).where(_outcomes.c.run_id.in_(old))).rowcount
    return gone + db.execute(delete(_runs).where(_runs.c.run_id.in_(old))).rowcount


def _delete_decided(db: Connection, replication: str, before: int) -> int:
    """Delete failed records that were retried or discarded, but never open ones."""
    rows = schema.failed_records
    key = list(rows.primary_key.columns)
    old = select(*key).where(rows.c.replication == replication, rows.c.state.not_in(OPEN), rows.c.updated_at < before)
    old = old.order_by(rows.c.updated_at).limit(RECORDS_AT_ONCE)
    return db.execute(delete(rows).where(tuple_(*key).in_(old))).rowcount


def _delete_seen(db: Connection, replication: str, before: int) -> int:
    """Delete samples and past alerts that ended before."""
    samples, past = schema.samples, schema.past_alerts
    gone = db.execute(delete(samples).where(samples.c.replication == replication, samples.c.at < before)).rowcount
    ended = past.c.replication == replication, past.c.ended_at < before
    return gone + db.execute(delete(past).where(*ended)).rowcount
