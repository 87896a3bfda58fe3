"""Leases, for tests: taking one as an attempt, and a run that has none."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from kafka_replication.runtime.identity import ProcessIdentity
from kafka_replication.store.held_lease import HeldLease, Terms, wait_for_lease
from kafka_replication.store.watermark_store import WatermarkStore
from kafka_replication.watermarks.values import Claim, Lease, Scope, TargetTopics


def exactly(*names: str) -> Scope:
    """These target topics; without names all."""
    return Scope.exactly(TargetTopics.of(names) if names else TargetTopics.ALL)


def live(*names: str) -> Scope:
    """What a live run asks for whose own target topics are these."""
    return Scope(wants=TargetTopics.ALL, needs=TargetTopics.of(names), at_least=TargetTopics.NONE)


def claim(replication: str, owner: str, holder: str, scope: Scope | None = None, **more: Any) -> Claim:
    return Claim(replication=replication, owner=owner, holder=holder, scope=scope or exactly(), **more)


def acquire(
    store: WatermarkStore,
    replication: str,
    owner: str,
    holder: str,
    seconds: float,
    scope: Scope | None = None,
    process: ProcessIdentity | None = None,
) -> Lease:
    """Raises Busy."""
    return store.acquire_lease(claim(replication, owner, holder, scope, process=process), seconds)


def wait(
    store: WatermarkStore,
    replication: str,
    owner: str,
    holder: str,
    seconds: float,
    wait_seconds: float,
    scope: Scope | None = None,
) -> Lease:
    """Raises Busy."""
    terms = Terms(duration=seconds, wait=wait_seconds)
    return wait_for_lease(store, claim(replication, owner, holder, scope), terms)


def hand_over(store: WatermarkStore, lease: Lease, seconds: float) -> None:
    store.hand_over_lease(lease, seconds, seconds)


def holder_of(store: WatermarkStore, replication: str) -> Lease | None:
    """The one lease or reservation of the replication."""
    held = [lease for lease in store.leases(replication) if not lease.waiting]
    assert len(held) <= 1, held
    return held[0] if held else None


class NoLease(HeldLease):
    """A run that believes to have all target topics, though no store knows it: only fencing keeps it apart."""

    def __init__(self, owner: str = "nobody", topics: Iterable[str] | None = None) -> None:
        now = datetime.now(UTC)
        held = TargetTopics.ALL if topics is None else TargetTopics.of(topics)
        self.lease = Lease(
            replication="any", owner=owner, holder="command", acquired_at=now, expires_at=now, token=1, topics=held
        )

    def check(self) -> None: ...

    def narrow(self, topics: TargetTopics) -> None: ...

    def give_way(self, seconds: float) -> bool:
        return False
