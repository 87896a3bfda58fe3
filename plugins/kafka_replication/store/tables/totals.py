"""Sums that only grow, for metrics. They are not pruned: a replication has a dozen of them, however long it runs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping

from sqlalchemy import Connection, and_, delete, func, insert, select, update

from kafka_replication.store import schema
from kafka_replication.store.tables.rows import replacing_insert
from kafka_replication.watermarks.sight import FAILED, RANGES, RUNS, VERIFIED, Total, Totals

_totals, _outcomes = schema.totals, schema.outcomes
# The name of a row that is no sum: the number of the call that added for a run last, so that a call that is repeated
# after an unknown outcome adds nothing. It goes when the run ends.
_MARK = ""


def add(db: Connection, replication: str, totals: Totals) -> None:
    for total, value in totals.items():
        values = {"replication": replication, "name": total.name, "kind": total.kind, "outcome": total.outcome}
        statement = replacing_insert(db, _totals).values(**values, value=value)
        key = [column.name for column in _totals.primary_key.columns]
        db.execute(statement.on_conflict_do_update(index_elements=key, set_={"value": _totals.c.value + value}))


def add_once(db: Connection, replication: str, totals: Totals, run_id: str, mark: float) -> None:
    """Add for this run, unless its last call had the same ``mark``."""
    where = (_totals.c.replication == replication, _totals.c.name == _MARK, _totals.c.kind == run_id)
    if db.execute(select(_totals.c.value).where(*where)).scalar() == mark:
        return
    add(db, replication, totals)
    db.execute(delete(_totals).where(*where))
    db.execute(insert(_totals).values(replication=replication, name=_MARK, kind=run_id, outcome="", value=mark))


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
    add(db, replication, sums)
    forget(db, ended)


def forget(db: Connection, run_ids: Collection[str]) -> None:
    """Delete the marks of these runs, which are over."""
    db.execute(delete(_totals).where(_totals.c.name == _MARK, _totals.c.kind.in_(run_ids)))


def of_all(db: Connection) -> dict[str, Totals]:
    found = defaultdict[str, dict[Total, float]](dict)
    for row in db.execute(select(_totals).where(_totals.c.name != _MARK)):
        found[row.replication][Total(row.name, row.kind, row.outcome)] = row.value
    return dict(found)
