"""The rules for leases, as pure functions that every store calls inside its transaction.

Boundaries between data intervals. In each partition a time is resolved to an offset once, and never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from kafka_replication.model.errors import BadInput, Busy
from kafka_replication.model.offsets import MAX_OFFSET, TopicPartition
from kafka_replication.model.times import to_text
from kafka_replication.watermarks.values import Claim, Lease, TargetTopics

# Grace period: an attempt whose lease has ended keeps its topics this long, unless another attempt needs them.
LATE: Final = timedelta(seconds=60)
IsGone = Callable[[Lease], bool]  # whether the lease's process has certainly ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """The lease to store, and the leases of dead attempts that it replaces."""

    lease: Lease
    replaces: tuple[Lease, ...] = ()


def decide_lease(
    leases: Collection[Lease], claim: Claim, token: int, now: datetime, expires_at: datetime, is_gone: IsGone
) -> Granted | Busy:
    """The lease to store when an attempt claims target topics. ``leases`` are all of its replication, ``token`` is new.

    An attempt gets the topics that it wants and that no other attempt has, if all topics that it needs are free.
    Attempts that have queued longer for the same topics come first. A lease ends with its time, or with its process.
    For `LATE` after its time, only topics that the new attempt needs are taken from it, not those that it wants: the
    old attempt may only be slow, and goes on. The same attempt renews its lease with the same token, even an expired
    one.
    """
    own = next((lease for lease in leases if lease.owner == claim.owner), None)
    if own is not None and not own.waiting and own.holder == claim.holder:
        return Granted(lease=replace(own, expires_at=expires_at))
    if own is not None and _holds(own) and is_alive(own, now, is_gone):
        return busy(own)
    others = [lease for lease in leases if lease is not own]
    place = own if own is not None and is_alive(own, now, is_gone) else None
    ahead = [lease for lease in others if is_alive(lease, now, is_gone) and _is_before(lease, place)]
    blocking = [lease for lease in ahead if lease.topics.overlaps(claim.scope.needs)]
    if blocking:
        return busy(min(blocking, key=lambda lease: lease.waiting))
    over = [lease for lease in others if not is_alive(lease, now, is_gone)]
    recent = [lease for lease in over if now - lease.expires_at < LATE and not is_gone(lease)]
    late = [lease for lease in recent if _holds(lease) and not lease.topics.overlaps(claim.scope.needs)]
    topics = claim.scope.wants
    for lease in (*ahead, *late):
        topics = topics.minus(lease.topics)
    # A recent place in the queue is not waited for, but shows that its run lives.
    kept = (*late, *(lease for lease in recent if lease.waiting))
    replaced = [lease for lease in over if lease not in kept]
    return Granted(lease=_new(claim, topics, token, now, expires_at), replaces=tuple(replaced))


def queued(leases: Collection[Lease], claim: Claim, token: int, now: datetime, expires_at: datetime) -> Lease | None:
    """The place in the queue. None if another attempt of its run has or had the lease."""
    own = next((lease for lease in leases if lease.owner == claim.owner), None)
    if own is not None and _holds(own):
        return None
    if own is not None and own.waiting and own.holder == claim.holder:
        return replace(own, topics=claim.scope.needs, expires_at=expires_at)
    return replace(_new(claim, claim.scope.needs, token, now, expires_at), waiting=True)


def place_behind(
    lease: Lease, leases: Collection[Lease], now: datetime, expires_at: datetime, is_gone: IsGone
) -> Lease | None:
    """The place in the queue of an attempt that gives up ``lease``, behind those that wait. None if nobody waits."""
    waiting = (row for row in leases if row.waiting and row.owner != lease.owner and is_alive(row, now, is_gone))
    if not any(row.topics.overlaps(lease.topics) for row in waiting):
        return None
    return replace(lease, waiting=True, acquired_at=now, expires_at=expires_at)


def _new(claim: Claim, topics: TargetTopics, token: int, now: datetime, expires_at: datetime) -> Lease:
    return Lease(
        replication=claim.replication,
        owner=claim.owner,
        holder=claim.holder,
        acquired_at=now,
        expires_at=expires_at,
        token=token,
        topics=topics,
        process=claim.process,
    )


def is_alive(lease: Lease, now: datetime, is_gone: IsGone) -> bool:
    """True if the lease, the reservation or the place in the queue still counts."""
    return lease.expires_at > now and not is_gone(lease)


def busy(lease: Lease) -> Busy:
    """The error of an attempt that has to wait for ``lease``."""
    if lease.waiting:
        what = f"{lease.replication}: {lease.who} waits longer for {lease.topics}"
    else:
        what = (
            f"{lease.replication} is being worked on by {lease.who}, whose lease ends {to_text(lease.expires_at)}"
            f" unless renewed ({lease.topics})"
        )
    remedy = "wait for that run, or stop it; the lease of a dead run expires"
    return Busy(what, remedy, owner=lease.owner, holder=lease.holder)


def not_held(lease: Lease, stored: Lease | None) -> Busy:
    """The error of an attempt whose ``lease`` is not the ``stored`` one of its run. ``stored`` is None if it was
    released, or if another run took its topics.
    """
    if stored is None:
        state = "it was released, or another run took it after it had expired"
    elif stored.holder is None:
        state = f"it is reserved for the next task of {stored.owner}"
    else:
        state = f"{stored.who} took it {to_text(stored.acquired_at)}"
    return Busy(
        f"{lease.who} no longer holds the lease of {lease.replication}: {state}",
        "let the other run finish, then run again",
    )


def _holds(lease: Lease) -> bool:
    """True if an attempt holds it, so that it is neither a reservation nor a place in the queue."""
    return lease.holder is not None and not lease.waiting


def _is_before(lease: Lease, place: Lease | None) -> bool:
    """True if ``lease`` counts before a claim of a run with the reservation or the place in the queue ``place``."""
    if not lease.waiting or place is None:
        return True
    return place.waiting and (lease.acquired_at, lease.owner) < (place.acquired_at, place.owner)


@dataclass(frozen=True, slots=True, order=True)
class BoundaryKey:
    """A partition of one topic. A re-created topic has another id, and so its own boundaries."""

    at: TopicPartition
    topic_id: str


def decide_boundary(resolved: int, before: int | None, after: int | None, copied: int | None = None) -> int:
    """The offset to store for a time: ``resolved``, which Kafka returns now, limited by the stored boundaries of
    earlier and later times.

    The limits are needed because a later time may have been resolved before a late record existed. It was then resolved
    to the last stable offset of that moment. For an earlier time Kafka may now return a higher offset, and the
    intervals would overlap.

    ``copied`` is the end of the offsets that were copied before this interval. If no stored earlier boundary reaches
    ``copied``, boundaries are missing. The interval then starts at ``copied`` at the latest, so that late records
    belong to this interval.
    """
    if copied is not None and (before is None or before < copied):
        resolved = min(resolved, copied)
    low, high = before or 0, MAX_OFFSET if after is None else after
    return min(max(resolved, low), high)


def check_interval(
    replication: str, start: datetime | None, end: datetime | None, now: datetime
) -> tuple[datetime, datetime]:
    """The data interval of a run, which a replication with ``progress: interval`` needs.

    Raises BadInput naming the replication.
    """
    remedy = "run it by its schedule or with `airflow backfill create`; for other ranges trigger its backfill DAG"
    if start is None or end is None:
        raise BadInput(
            f"replication {replication} copies data intervals (progress: interval), and this run has none", remedy
        )
    if start >= end:
        raise BadInput(
            f"replication {replication}: the data interval [{start.isoformat()}, {end.isoformat()}) is empty", remedy
        )
    if end > now:
        raise BadInput(
            f"replication {replication}: the data interval [{start.isoformat()}, {end.isoformat()}) has not ended yet",
            remedy,
        )
    return start, end
