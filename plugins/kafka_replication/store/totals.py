"""Sums that only grow, for metrics. They are not pruned: a replication has a dozen of them, however long it runs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping

from sqlalchemy import Connection, and_, delete, func, insert, select, update

from kafka_replication.store import schema
from kafka_replication.store.database import Database, reads
from kafka_replication.store.rows import put
from kafka_replication.watermarks.sight import FAILED, RANGES, RUNS, VERIFIED, Total, Totals

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
    forget(db, ended)


def forget(db: Connection, run_ids: Collection[str]) -> None:
    """Delete the marks of these runs, which are over."""
    db.execute(delete(_totals).where(_totals.c.name == _MARK, _totals.c.kind.in_(run_ids)))


def _add(db: Connection, replication: str, totals: Totals) -> None:
    rows = [
        {"replication": replication, "name": total.name, "kind": total.kind, "outcome": total.outcome, "value": value}
        for total, value in totals.items()
    ]
    put(db, _totals, rows, lambda new: {"value": _totals.c.value + new.value})
