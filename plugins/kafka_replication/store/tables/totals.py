"""Sums that only grow, for metrics. They are not pruned: a replication has a dozen of them, however long it runs."""

from __future__ import annotations

from collections import defaultdict

from sqlalchemy import Connection, func, select

from kafka_replication.store import schema
from kafka_replication.store.tables.rows import replacing_insert
from kafka_replication.watermarks.sight import FAILED, RANGES, RUNS, VERIFIED, Total, Totals
from kafka_replication.watermarks.values import RunRecord

_totals, _outcomes = schema.totals, schema.outcomes


def add(db: Connection, replication: str, totals: Totals) -> None:
    for total, value in totals.items():
        values = {"replication": replication, "name": total.name, "kind": total.kind, "outcome": total.outcome}
        statement = replacing_insert(db, _totals).values(**values, value=value)
        key = [column.name for column in _totals.primary_key.columns]
        db.execute(statement.on_conflict_do_update(index_elements=key, set_={"value": _totals.c.value + value}))


def add_end(db: Connection, run: RunRecord, state: str) -> None:
    """Count a run that has ended in this state, and its ranges."""
    failed = _outcomes.c.error.is_not(None)
    query = select(failed, func.count()).where(_outcomes.c.run_id == run.run_id).group_by(failed)
    ranges = {Total(RANGES, outcome=FAILED if has_failed else VERIFIED): n for has_failed, n in db.execute(query)}
    add(db, run.replication, {Total(RUNS, run.kind, state): 1, **ranges})


def of_all(db: Connection) -> dict[str, Totals]:
    found = defaultdict[str, dict[Total, float]](dict)
    for row in db.execute(select(_totals)):
        found[row.replication][Total(row.name, row.kind, row.outcome)] = row.value
    return dict(found)
