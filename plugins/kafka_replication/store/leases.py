"""The table of leases: one row per replication, which stays after its lease is released."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from kafka_replication.model.times import floor_millis, from_millis
from kafka_replication.store import connect, schema
from kafka_replication.watermarks.rules import decide_lease, lost
from kafka_replication.watermarks.values import Lease

_table = schema.leases


def in_millis(seconds: float) -> int:
    """A lease's duration in milliseconds. Raises ValueError if it is not positive."""
    if seconds <= 0:
        raise ValueError(f"a lease lasts more than 0 s, not {seconds:g} s")
    return max(1, round(seconds * 1000))


def acquire(db: Connection, replication: str, owner: str, holder: str, duration: int) -> Lease:
    stored, held = _locked(db, replication)
    now = connect.clock(db)
    wanted = Lease(
        replication=replication,
        owner=owner,
        holder=holder,
        acquired_at=from_millis(now),
        expires_at=from_millis(now + duration),
        token=1,
    )
    decided = decide_lease(stored, held, wanted, from_millis(now))
    if stored is None:
        db.execute(insert(_table).values(_values(decided, held=True)))
    else:
        _put(db, decided, held=True)
    return decided


def renew(db: Connection, lease: Lease, duration: int) -> Lease:
    stored, held = _locked(db, lease.replication)
    if stored is None or not held or not stored.is_same_hold(lease):
        raise lost(lease, stored if held else None)
    renewed = replace(stored, expires_at=from_millis(connect.clock(db) + duration))
    _put(db, renewed, held=True)
    return renewed


def hand_over(db: Connection, lease: Lease, duration: int) -> None:
    stored, held = _locked(db, lease.replication)
    if stored is not None and held and stored.is_same_hold(lease):
        until = from_millis(connect.clock(db) + duration)
        _put(db, replace(stored, holder=None, expires_at=until), held=True)


def release(db: Connection, lease: Lease) -> None:
    stored, held = _locked(db, lease.replication)
    if stored is not None and held and stored.is_same_hold(lease):
        _put(db, stored, held=False)


def current(db: Connection, replication: str) -> Lease | None:
    row = db.execute(select(_table).where(_table.c.replication == replication, _table.c.held)).one_or_none()
    return _lease(row) if row and row.expires_at > connect.clock(db) else None


def _locked(db: Connection, replication: str) -> tuple[Lease | None, bool]:
    """The last lease of a replication, locked, and whether it is held, that is not released."""
    row = db.execute(select(_table).where(_table.c.replication == replication).with_for_update()).one_or_none()
    return (_lease(row), row.held) if row else (None, False)


def _put(db: Connection, lease: Lease, *, held: bool) -> None:
    db.execute(update(_table).where(_table.c.replication == lease.replication).values(_values(lease, held=held)))


def _values(lease: Lease, *, held: bool) -> dict[str, Any]:
    return {
        "replication": lease.replication,
        "owner": lease.owner,
        "holder": lease.holder,
        "held": held,
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
    )
