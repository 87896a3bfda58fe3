"""Finds dead runs. A planned run has died if it has no lease, and none of its tasks is expected."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from sqlalchemy import Connection, or_, select, update

from kafka_replication.model.times import from_millis
from kafka_replication.store import connect, schema
from kafka_replication.store.tables import totals
from kafka_replication.watermarks.lease_rules import LATE, is_alive
from kafka_replication.watermarks.values import Lease, RunRecord

_runs = schema.runs


def is_gone(lease: Lease) -> bool:
    """True if the process that has the lease has ended, as far as this host can know."""
    return lease.process is not None and lease.process.is_gone()


def expect(db: Connection, run_id: str, until: int) -> None:
    """Store that the next task of the run is expected until this time, in milliseconds."""
    db.execute(update(_runs).where(_runs.c.run_id == run_id).values(expected_until=until))


def reopen(db: Connection, run_id: str) -> None:
    """An attempt works on the run: it is planned again if it counted as dead, and no other task is expected."""
    mine = _runs.c.run_id == run_id
    db.execute(update(_runs).where(mine, _runs.c.state == "died").values(state="planned", finished_at=None))
    db.execute(update(_runs).where(mine, _runs.c.expected_until.is_not(None)).values(expected_until=None))


def close_dead(db: Connection, replication: str, leases: Collection[Lease], now: int) -> None:
    """Store the end of every dead run of the replication. ``now`` is in milliseconds.

    A run whose lease has only just expired may be late.
    """
    working = [lease.owner for lease in leases if is_alive(lease, from_millis(now) - LATE, is_gone)]
    planned = select(_runs.c.run_id, _runs.c.kind).where(_runs.c.replication == replication, _runs.c.state == "planned")
    over = planned.where(or_(_runs.c.expected_until.is_(None), _runs.c.expected_until <= now))
    dead = {run_id: kind for run_id, kind in map(tuple, db.execute(over)) if run_id not in working}
    if dead:
        db.execute(update(_runs).where(_runs.c.run_id.in_(dead)).values(state="died", finished_at=now))
        totals.add_end(db, replication, dead, "died")


def seen(db: Connection, runs: Sequence[RunRecord], leases: Collection[Lease]) -> list[RunRecord]:
    """The same runs with their ``alive``."""
    now = connect.clock(db)
    working = {lease.owner for lease in leases if is_alive(lease, from_millis(now), is_gone)}
    planned = [run.run_id for run in runs if run.state == "planned"]
    expected = select(_runs.c.run_id).where(_runs.c.run_id.in_(planned), _runs.c.expected_until > now)
    living = (working | set(db.execute(expected).scalars())) & set(planned) if planned else set()
    return [replace(run, alive=run.run_id in living) for run in runs]
