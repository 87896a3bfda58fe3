"""Deletes old rows of a replication in batches. Each batch is a short transaction."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, and_, delete, or_, select, tuple_, update

from kafka_replication.store import connect, schema
from kafka_replication.store.tables import sight, totals
from kafka_replication.watermarks.failed import OPEN

# With a thousand partitions a batch has 20,000 outcomes, and 20 batches delete the rows of 400 runs.
RUNS_AT_ONCE: Final = 20
CHANGES_AT_ONCE: Final = 5_000
BATCHES: Final = 20
# Airflow may repeat the last task of a run that has just succeeded, and the task reads the plan. A run that is cleared
# later is planned again.
PLAN_MILLIS: Final = 3_600_000


def prune(db: Connection, replication: str, older_than: int) -> int:
    """Delete one batch of rows that are older than ``older_than`` milliseconds. Returns the number of deleted rows."""
    now = connect.clock(db)
    _drop_plans(db, replication, now - PLAN_MILLIS)
    before = now - older_than
    deletions = (_delete_runs, _delete_changes, _delete_decided, sight.delete_old)
    return sum(delete_old(db, replication, before) for delete_old in deletions)


def _drop_plans(db: Connection, replication: str, before: int) -> None:
    runs = schema.runs.c
    succeeded = runs.state.in_(("done", "nothing_to_do"))
    old = and_(runs.replication == replication, succeeded, runs.plan != "", runs.finished_at < before)
    db.execute(update(schema.runs).where(old).values(plan=""))


def _delete_runs(db: Connection, replication: str, before: int) -> int:
    runs, outcomes = schema.runs, schema.outcomes
    ended = or_(runs.c.finished_at.is_(None), runs.c.finished_at < before)
    query = select(runs.c.run_id).where(runs.c.replication == replication, runs.c.created_at < before, ended)
    old = db.execute(query.order_by(runs.c.created_at).limit(RUNS_AT_ONCE)).scalars().all()
    if not old:
        return 0
    totals.forget(db, old)
    gone = db.execute(delete(outcomes).where(outcomes.c.run_id.in_(old))).rowcount
    return gone + db.execute(delete(runs).where(runs.c.run_id.in_(old))).rowcount


def _delete_changes(db: Connection, replication: str, before: int) -> int:
    """Delete changes of watermarks, but never the newest one of a partition."""
    history, marks = schema.history, schema.watermarks
    key = [history.c[column.name] for column in history.primary_key.columns]
    same = and_(*(marks.c[column.name] == history.c[column.name] for column in marks.primary_key.columns))
    newest = select(marks.c.version).where(same).scalar_subquery()
    old = select(*key).where(history.c.replication == replication, history.c.updated_at < before)
    old = old.where(history.c.version < newest).order_by(history.c.updated_at).limit(CHANGES_AT_ONCE)
    return db.execute(delete(history).where(tuple_(*key).in_(old))).rowcount


def _delete_decided(db: Connection, replication: str, before: int) -> int:
    """Delete failed records that were retried or discarded, but never open ones."""
    rows = schema.failed_records
    key = list(rows.primary_key.columns)
    old = select(*key).where(rows.c.replication == replication, rows.c.state.not_in(OPEN), rows.c.updated_at < before)
    old = old.order_by(rows.c.updated_at).limit(CHANGES_AT_ONCE)
    return db.execute(delete(rows).where(tuple_(*key).in_(old))).rowcount
