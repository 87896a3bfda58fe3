"""The tables of leases: one row per replication, which is locked, and one row per run that has or wants a lease.

A planned run has died if it has no lease, and none of its tasks is expected.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace as with_changes
from typing import Any

from sqlalchemy import Connection, Row, and_, delete, insert, or_, select, update

from kafka_replication.model.errors import Busy
from kafka_replication.model.times import floor_millis, from_millis
from kafka_replication.runtime.identity import IDENTITY
from kafka_replication.store import connect, schema, tables
from kafka_replication.store.database import Database, reads, writes
from kafka_replication.store.tables import replace
from kafka_replication.watermarks import rules
from kafka_replication.watermarks.rules import LATE, is_alive, not_held
from kafka_replication.watermarks.values import Claim, Lease, RunRecord, TargetTopics

_table, _replications, _runs = schema.leases, schema.replication_leases, schema.runs
_AS_IN_ROW = ("replication", "owner", "holder", "token", "waiting")


class Leases(Database):
    def acquire_lease(self, claim: Claim, duration_seconds: float) -> Lease:
        """Take, take over or renew a lease by the rules of `rules.decide_lease`, without waiting.

        Stores the end of the replication's runs that died. Raises Busy; the attempt then has a place in the queue for
        ``duration_seconds``, and keeps it if it tries again in time.
        """

        def acquire(db: Connection) -> Lease | Busy:
            token = _lock(db, claim) + 1
            # Holders renew without the replication's lock: a lease that is read here and then deleted must not be
            # renewed in between.
            stored, now = of_replication(db, claim.replication, for_update=True), connect.clock(db)
            times = from_millis(now), from_millis(now + duration)
            decided = rules.decide_lease(stored, claim, token, *times, is_gone)
            if isinstance(decided, Busy):
                place = rules.queued(stored, claim, token, *times)
                replace(db, _table, [_values(place)] if place else [])
                return decided
            for dead in decided.replaces:
                db.execute(delete(_table).where(_is_run(dead)))
            replace(db, _table, [_values(decided.lease)])
            its = _replications.c.replication == claim.replication
            db.execute(update(_replications).where(its).values(token=decided.lease.token))
            counting = [lease for lease in (*stored, decided.lease) if lease not in decided.replaces]
            _settle_runs(db, decided.lease, counting, now)
            return decided.lease

        duration = _in_millis(duration_seconds)
        decided = self._write(acquire)
        if isinstance(decided, Busy):
            raise decided
        return decided

    @writes
    def renew_lease(
        self, db: Connection, lease: Lease, duration_seconds: float, topics: TargetTopics | None = None
    ) -> Lease:
        """Let the lease expire ``duration_seconds`` from now, even if it has expired but no other attempt took it. Keep
        only ``topics`` if they are given, and leave the others to other attempts.

        Raises Busy if another attempt took it.
        """
        return renew(db, lease, duration_seconds, topics)

    @writes
    def give_way(self, db: Connection, lease: Lease, duration_seconds: float) -> bool:
        """Put a place in the queue behind another attempt that waits for topics of this lease in the lease's stead, in
        one transaction, and return True; False if none waits. The place is kept as that of `acquire_lease` is, and the
        run lives on: it is never without both.

        Raises Busy if another attempt took the lease.
        """
        _lock(db, lease)
        stored, now = of_replication(db, lease.replication, for_update=True), connect.clock(db)
        own = next((row for row in stored if row.owner == lease.owner), None)
        if own is None or (own.holder, own.token) != (lease.holder, lease.token):
            raise not_held(lease, None if own is None or own.waiting else own)
        if own.waiting:  # by a call whose answer was lost
            return True
        times = from_millis(now), from_millis(now + _in_millis(duration_seconds))
        place = rules.place_behind(own, stored, *times, is_gone)
        replace(db, _table, [_values(place)] if place else [])
        return place is not None

    @writes
    def hand_over_lease(self, db: Connection, lease: Lease, reserved_seconds: float, expected_seconds: float) -> None:
        """Reserve the lease for the next task of the same run, which counts as alive for ``expected_seconds`` from now;
        or the place in the queue for which the lease was given up.

        Does nothing if the store has another lease.
        """
        now = connect.clock(db)
        changes = {"holder": None, "process": None, "expires_at": now + _in_millis(reserved_seconds)}
        if db.execute(update(_table).where(_is_own(lease)).values(changes)).rowcount:
            expected = now + _in_millis(expected_seconds)
            db.execute(update(_runs).where(_runs.c.run_id == lease.owner).values(expected_until=expected))

    @writes
    def release_lease(self, db: Connection, lease: Lease) -> None:
        """Release the lease, or the place in the queue for which it was given up. Does nothing if the store has another
        lease.
        """
        db.execute(delete(_table).where(_is_own(lease)))

    @writes
    def revoke_leases(self, db: Connection, replication: str) -> None:
        """Take all leases and places in the queue of the replication from their holders. Each notices it when it renews
        its lease, and stops.
        """
        db.execute(delete(_table).where(_table.c.replication == replication))

    @writes
    def leave_queue(self, db: Connection, claim: Claim) -> None:
        """Give up the attempt's place in the queue. Does nothing if it has none."""
        db.execute(delete(_table).where(_is_run(claim), _table.c.holder == claim.holder, _table.c.waiting))

    @reads
    def leases(self, db: Connection, replication: str) -> list[Lease]:
        """The leases, reservations and places in the queue of the replication that have not expired, and whose
        processes are not known to be gone; oldest first.
        """
        now = from_millis(connect.clock(db))
        counting = [lease for lease in of_replication(db, replication) if is_alive(lease, now, is_gone)]
        return sorted(counting, key=lambda lease: (lease.acquired_at, lease.owner))


def renew(db: Connection, lease: Lease, duration_seconds: float, topics: TargetTopics | None = None) -> Lease:
    until = from_millis(connect.clock(db) + _in_millis(duration_seconds))
    values: dict[str, Any] = {"expires_at": floor_millis(until)}
    if topics is not None:
        values["topics"] = topics.encode()
    # One statement that locks nothing but the row: holders renew often.
    if db.execute(update(_table).where(_is_own(lease), _table.c.waiting.is_(False)).values(values)).rowcount:
        return with_changes(lease, expires_at=until, topics=lease.topics if topics is None else topics)
    row = db.execute(select(_table).where(_is_run(lease))).one_or_none()
    raise not_held(lease, None if row is None or row.waiting else _lease(row))


def is_gone(lease: Lease) -> bool:
    """True if the process that has the lease has ended, as far as this host can know."""
    return lease.process is not None and lease.process.is_gone()


def of_replication(db: Connection, replication: str, *, for_update: bool = False) -> list[Lease]:
    """Every stored lease, reservation and place in the queue, also the expired ones."""
    query = select(_table).where(_table.c.replication == replication)
    return [_lease(row) for row in db.execute(query.with_for_update() if for_update else query)]


def with_life(db: Connection, runs: Iterable[RunRecord]) -> list[RunRecord]:
    """The same runs with their ``alive``: a planned one lives while it has a lease, or its next task is expected."""
    known = list(runs)
    planned = {run.run_id for run in known if run.state == "planned"}
    if not planned:
        return known
    now = connect.clock(db)
    leases = map(_lease, db.execute(select(_table).where(_table.c.owner.in_(planned))))
    living = {lease.owner for lease in leases if is_alive(lease, from_millis(now), is_gone)}
    expected = select(_runs.c.run_id).where(_runs.c.run_id.in_(planned), _runs.c.expected_until > now)
    if planned - living:
        living |= set(db.execute(expected).scalars())
    return [with_changes(run, alive=True) if run.run_id in living else run for run in known]


def _settle_runs(db: Connection, granted: Lease, leases: Iterable[Lease], now: int) -> None:
    """An attempt works on the run of ``granted``: it is planned again if it counted as dead, and no other task is
    expected. Store the end of every dead run of the replication; one whose lease has only just expired may be late.
    """
    own = _runs.c.run_id == granted.owner
    db.execute(update(_runs).where(own, _runs.c.state == "died").values(state="planned", finished_at=None))
    db.execute(update(_runs).where(own, _runs.c.expected_until.is_not(None)).values(expected_until=None))
    working = [lease.owner for lease in leases if is_alive(lease, from_millis(now) - LATE, is_gone)]
    over = select(_runs.c.run_id, _runs.c.kind).where(
        _runs.c.replication == granted.replication,
        _runs.c.state == "planned",
        or_(_runs.c.expected_until.is_(None), _runs.c.expected_until <= now),
    )
    dead = {run_id: kind for run_id, kind in map(tuple, db.execute(over)) if run_id not in working}
    if dead:
        db.execute(update(_runs).where(_runs.c.run_id.in_(dead)).values(state="died", finished_at=now))
        tables.add_end(db, granted.replication, dead, "died")


def _in_millis(seconds: float) -> int:
    """A lease's duration in milliseconds. Raises ValueError if it is not positive."""
    if seconds <= 0:
        raise ValueError(f"a lease lasts more than 0 s, not {seconds:g} s")
    return max(1, round(seconds * 1000))


def _lock(db: Connection, claim: Claim | Lease) -> int:
    """Lock the replication's leases. Returns the last token."""
    query = select(_replications.c.token).where(_replications.c.replication == claim.replication).with_for_update()
    token = db.execute(query).scalar_one_or_none()
    if token is None:
        db.execute(insert(_replications).values(replication=claim.replication, token=0))
    return token or 0


def _is_run(row: Lease | Claim) -> Any:
    return and_(_table.c.replication == row.replication, _table.c.owner == row.owner)


def _is_own(lease: Lease) -> Any:
    """The lease, or the place in the queue for which the attempt gave it up."""
    return and_(_is_run(lease), _table.c.holder == lease.holder, _table.c.token == lease.token)


def _values(lease: Lease) -> dict[str, Any]:
    return {
        **{name: getattr(lease, name) for name in _AS_IN_ROW},
        "topics": lease.topics.encode(),
        "process": IDENTITY.dump_json(lease.process).decode() if lease.process else None,
        "acquired_at": floor_millis(lease.acquired_at),
        "expires_at": floor_millis(lease.expires_at),
    }


def _lease(row: Row[Any]) -> Lease:
    as_in_row: dict[str, Any] = {name: getattr(row, name) for name in _AS_IN_ROW}
    return Lease(
        acquired_at=from_millis(row.acquired_at),
        expires_at=from_millis(row.expires_at),
        topics=TargetTopics.decode(row.topics),
        process=IDENTITY.validate_json(row.process) if row.process else None,
        **as_in_row,
    )
