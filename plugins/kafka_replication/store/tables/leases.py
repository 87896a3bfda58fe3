"""The tables of leases: one row per replication, which is locked, and one row per run that has or wants a lease."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, and_, delete, insert, select, update

from kafka_replication.model.errors import Busy
from kafka_replication.model.times import floor_millis, from_millis
from kafka_replication.runtime.identity import IDENTITY
from kafka_replication.store import connect, schema
from kafka_replication.store.tables import run_liveness
from kafka_replication.store.tables.rows import replacing_insert
from kafka_replication.watermarks import lease_rules
from kafka_replication.watermarks.lease_rules import Granted, not_held
from kafka_replication.watermarks.topics import TargetTopics
from kafka_replication.watermarks.values import Claim, Lease

_table, _replications = schema.leases, schema.replication_leases


def in_millis(seconds: float) -> int:
    """A lease's duration in milliseconds. Raises ValueError if it is not positive."""
    if seconds <= 0:
        raise ValueError(f"a lease lasts more than 0 s, not {seconds:g} s")
    return max(1, round(seconds * 1000))


def acquire(db: Connection, claim: Claim, duration: int) -> Lease | Busy:
    """The lease; or the error that names its holder, after the attempt got its place in the queue."""
    token = _lock(db, claim) + 1
    # Holders renew without the replication's lock: a lease that is read here and then deleted must not be renewed in
    # between.
    stored, now = of_replication(db, claim.replication, for_update=True), connect.clock(db)
    times = from_millis(now), from_millis(now + duration)
    decided = lease_rules.decide_lease(stored, claim, token, *times, run_liveness.is_gone)
    if isinstance(decided, Busy):
        place = lease_rules.queued(stored, claim, token, *times)
        if place is not None:
            _put(db, place)
        return decided
    _grant(db, decided, now)
    return decided.lease


def _grant(db: Connection, granted: Granted, now: int) -> None:
    lease = granted.lease
    for dead in granted.replaces:
        _delete(db, dead)
    _put(db, lease)
    changes = {"token": lease.token}
    db.execute(update(_replications).where(_replications.c.replication == lease.replication).values(changes))
    run_liveness.reopen(db, lease.owner)
    run_liveness.close_dead(db, lease.replication, of_replication(db, lease.replication), now)


def renew(db: Connection, lease: Lease, duration: int, topics: TargetTopics | None = None) -> Lease:
    """Renew, and keep only ``topics`` if they are given."""
    until = from_millis(connect.clock(db) + duration)
    values: dict[str, Any] = {"expires_at": floor_millis(until)}
    if topics is not None:
        values["topics"] = topics.encode()
    # One statement that locks nothing but the row: holders renew often.
    if not db.execute(update(_table).where(_is_hold(lease)).values(values)).rowcount:
        stored = _of_run(db, lease)
        raise not_held(lease, None if stored is None or stored.waiting else stored)
    renewed = _of_run(db, lease)
    assert renewed is not None
    return renewed


def give_way(db: Connection, lease: Lease, duration: int) -> bool:
    """Change the lease into a place in the queue, in one step: its run is never without both. False if nobody waits."""
    _lock(db, lease)
    stored, now = of_replication(db, lease.replication, for_update=True), connect.clock(db)
    own = next((row for row in stored if row.owner == lease.owner), None)
    if own is None or (own.holder, own.token) != (lease.holder, lease.token):
        raise not_held(lease, None if own is None or own.waiting else own)
    if own.waiting:  # by a call whose answer was lost
        return True
    place = lease_rules.place_behind(own, stored, from_millis(now), from_millis(now + duration), run_liveness.is_gone)
    if place is not None:
        _put(db, place)
    return place is not None


def hand_over(db: Connection, lease: Lease, reserved: int, expected: int) -> None:
    now = connect.clock(db)
    changes = {"holder": None, "process": None, "expires_at": now + reserved}
    if db.execute(update(_table).where(_is_own(lease)).values(changes)).rowcount:
        run_liveness.expect(db, lease.owner, now + expected)


def release(db: Connection, lease: Lease) -> None:
    db.execute(delete(_table).where(_is_own(lease)))


def leave_queue(db: Connection, claim: Claim) -> None:
    db.execute(delete(_table).where(_is_run(claim), _table.c.holder == claim.holder, _table.c.waiting))


def current(db: Connection, replication: str) -> list[Lease]:
    """The leases, reservations and places in the queue that count now, oldest first."""
    now = from_millis(connect.clock(db))
    counting = [
        lease for lease in of_replication(db, replication) if lease_rules.is_alive(lease, now, run_liveness.is_gone)
    ]
    return sorted(counting, key=lambda lease: (lease.acquired_at, lease.owner))


def _lock(db: Connection, claim: Claim | Lease) -> int:
    """Lock the replication's leases. Returns the last token."""
    query = select(_replications.c.token).where(_replications.c.replication == claim.replication).with_for_update()
    token = db.execute(query).scalar_one_or_none()
    if token is None:
        db.execute(insert(_replications).values(replication=claim.replication, token=0))
    return token or 0


def of_replication(db: Connection, replication: str, *, for_update: bool = False) -> list[Lease]:
    """Every stored lease, reservation and place in the queue, also the expired ones."""
    query = select(_table).where(_table.c.replication == replication)
    rows = db.execute(query.with_for_update() if for_update else query)
    return [_lease(row) for row in rows]


def _is_run(row: Lease | Claim) -> Any:
    return and_(_table.c.replication == row.replication, _table.c.owner == row.owner)


def _is_hold(lease: Lease) -> Any:
    return and_(_is_own(lease), _table.c.waiting.is_(False))


def _is_own(lease: Lease) -> Any:
    """The lease, or the place in the queue for which the attempt gave it up."""
    return and_(_is_run(lease), _table.c.holder == lease.holder, _table.c.token == lease.token)


def _of_run(db: Connection, lease: Lease) -> Lease | None:
    row = db.execute(select(_table).where(_is_run(lease))).one_or_none()
    return _lease(row) if row else None


def _put(db: Connection, lease: Lease) -> None:
    statement = replacing_insert(db, _table)
    values = _values(lease)
    others = {name: statement.excluded[name] for name in values if name not in ("replication", "owner")}
    db.execute(statement.on_conflict_do_update(index_elements=["replication", "owner"], set_=others), values)


def _delete(db: Connection, lease: Lease) -> None:
    db.execute(delete(_table).where(_is_run(lease)))


def _values(lease: Lease) -> dict[str, Any]:
    return {
        "replication": lease.replication,
        "owner": lease.owner,
        "holder": lease.holder,
        "waiting": lease.waiting,
        "topics": lease.topics.encode(),
        "process": IDENTITY.dump_json(lease.process).decode() if lease.process else None,
        "acquired_at": floor_millis(lease.acquired_at),
        "expires_at": floor_millis(lease.expires_at),
        "token": lease.token,
    }


def _lease(row: Row[Any]) -> Lease:
    return Lease(
        replication=row.replication,
        owner=row.owner,
        holder=row.holder,
        acquired_at=from_millis(row.acquired_at),
        expires_at=from_millis(row.expires_at),
        token=row.token,
        topics=TargetTopics.decode(row.topics),
        process=IDENTITY.validate_json(row.process) if row.process else None,
        waiting=row.waiting,
    )
