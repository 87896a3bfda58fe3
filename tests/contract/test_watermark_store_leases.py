"""What every watermark store must do with leases, and what holding one means; `conftest` says which stores."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from kafka_replication.model.errors import Busy, Unreachable
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.store import connect, leases, rows, sql
from kafka_replication.watermarks import store as domain
from kafka_replication.watermarks.lease import HeldLease, Release, wait_for_lease
from kafka_replication.watermarks.store import WatermarkStore
from tests.support import watermarks

NAME = "orders-dr"
KEY = PartitionKey(NAME, TopicPartition("orders", 3), "orders")
LONG = 60.0


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        threading.Event().wait(0.01)


# Leases


def test_the_second_owner_is_told_who_holds_the_lease_and_until_when(store: WatermarkStore) -> None:
    held = store.acquire_lease(NAME, "run-1", "try-1", LONG)
    assert held.expires_at - held.acquired_at == timedelta(seconds=LONG)
    assert store.lease_of(NAME) == held
    with pytest.raises(Busy, match=f"orders-dr .* run-1 .try-1., .*{held.expires_at:%Y-%m-%dT%H:%M:%SZ}"):
        store.acquire_lease(NAME, "run-2", "try-1", LONG)
    assert store.acquire_lease("another", "run-2", "try-1", LONG).owner == "run-2"


def test_acquiring_again_renews_under_the_same_token(store: WatermarkStore) -> None:
    first = store.acquire_lease(NAME, "run-1", "try-1", LONG)
    again = store.acquire_lease(NAME, "run-1", "try-1", 2 * LONG)
    assert (again.token, again.acquired_at) == (first.token, first.acquired_at)
    assert again.expires_at >= first.expires_at + timedelta(seconds=LONG)
    assert store.renew_lease(first, 3 * LONG).expires_at > again.expires_at


def test_a_lease_given_back_is_free_at_once_and_its_token_never_returns(store: WatermarkStore) -> None:
    tokens = []
    for number in range(4):
        lease = store.acquire_lease(NAME, f"run-{number % 2}", "try-1", LONG)
        tokens.append(lease.token)
        store.release_lease(lease)
        store.release_lease(lease)
        assert store.lease_of(NAME) is None
    assert tokens == [1, 2, 3, 4]


def test_an_old_holder_can_neither_release_nor_renew_what_another_holds(store: WatermarkStore) -> None:
    old = store.acquire_lease(NAME, "run-1", "try-1", LONG)
    store.release_lease(old)
    new = store.acquire_lease(NAME, "run-2", "try-1", LONG)
    store.release_lease(old)
    assert store.lease_of(NAME) == new
    with pytest.raises(Busy, match=r"run-1 \(try-1\) no longer holds the lease of orders-dr: run-2 \(try-1\) took it"):
        store.renew_lease(old, LONG)


def test_the_same_owner_cannot_use_a_handle_from_before_it_gave_the_lease_back(store: WatermarkStore) -> None:
    old = store.acquire_lease(NAME, "run-1", "try-1", LONG)
    store.release_lease(old)
    with pytest.raises(Busy, match="it was released"):
        store.renew_lease(old, LONG)
    new = store.acquire_lease(NAME, "run-1", "try-1", LONG)
    store.release_lease(old)
    assert store.lease_of(NAME) == new


def test_an_expired_lease_is_taken_over_with_a_higher_token(store: WatermarkStore) -> None:
    short = store.acquire_lease(NAME, "dead", "try-1", 0.3)
    taken = wait_for_lease(store, NAME, "run-2", "try-1", LONG, 20)
    assert taken.token == short.token + 1
    assert taken.acquired_at >= short.expires_at
    with pytest.raises(Busy, match=r"run-2 \(try-1\) took it"):
        store.renew_lease(short, LONG)


def test_an_expired_lease_nobody_took_is_still_its_owners(store: WatermarkStore) -> None:
    short = store.acquire_lease(NAME, "run-1", "try-1", 0.05)
    until(lambda: store.lease_of(NAME) is None)
    assert store.renew_lease(short, LONG).token == short.token
    with pytest.raises(Busy):
        store.acquire_lease(NAME, "run-2", "try-1", LONG)


def test_the_clock_of_this_process_does_not_matter(store: WatermarkStore, monkeypatch: pytest.MonkeyPatch) -> None:
    real = store.acquire_lease(NAME, "run-1", "try-1", LONG)

    class Tomorrow(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + timedelta(days=1)

    now, now_ns, day = time.time, time.time_ns, 86400
    monkeypatch.setattr(time, "time", lambda: now() + day)
    monkeypatch.setattr(time, "time_ns", lambda: now_ns() + day * 10**9)
    for module in (domain, connect, leases, rows, sql):
        monkeypatch.setattr(module, "datetime", Tomorrow, raising=False)
    with pytest.raises(Busy):
        store.acquire_lease(NAME, "run-2", "try-1", LONG)
    assert store.lease_of(NAME) == real
    assert store.renew_lease(real, LONG).expires_at - real.expires_at < timedelta(seconds=LONG)
    assert watermarks.advance(store, KEY, 1, None).updated_at - real.acquired_at < timedelta(seconds=LONG)


def test_waiting_for_the_lease_ends_naming_the_holder(store: WatermarkStore) -> None:
    store.acquire_lease(NAME, "run-1", "try-1", LONG)
    started = time.monotonic()
    with pytest.raises(Busy, match=r"run-1.*run-2 waited 0\.2 s"):
        wait_for_lease(store, NAME, "run-2", "try-1", LONG, 0.2)
    assert time.monotonic() - started >= 0.2


@pytest.mark.parametrize("seconds", [0, -1])
def test_a_lease_lasts(store: WatermarkStore, seconds: float) -> None:
    with pytest.raises(ValueError, match="more than 0 s"):
        store.acquire_lease(NAME, "run-1", "try-1", seconds)


# Attempts


def test_another_attempt_of_the_same_run_waits_like_anybody_else(store: WatermarkStore) -> None:
    first = store.acquire_lease(NAME, "run-1", "try-1", LONG)
    with pytest.raises(Busy, match=r"worked on by run-1 \(try-1\), whose lease ends"):
        store.acquire_lease(NAME, "run-1", "try-2", LONG)
    assert store.renew_lease(first, LONG).token == first.token


def test_a_lease_handed_over_is_for_the_next_attempt_of_its_run_only(store: WatermarkStore) -> None:
    first = store.acquire_lease(NAME, "run-1", "plan", LONG)
    store.hand_over_lease(first, 2 * LONG)
    store.hand_over_lease(first, 3 * LONG)  # repeated after an unknown outcome: nothing more happens
    reserved = store.lease_of(NAME)
    assert reserved is not None
    assert (reserved.owner, reserved.holder) == ("run-1", None)
    assert timedelta(seconds=2 * LONG) <= reserved.expires_at - first.acquired_at < timedelta(seconds=3 * LONG)
    with pytest.raises(Busy, match="worked on by run-1, whose lease ends"):
        store.acquire_lease(NAME, "run-2", "plan", LONG)
    with pytest.raises(Busy, match="it is reserved for the next task of run-1"):
        store.renew_lease(first, LONG)
    second = store.acquire_lease(NAME, "run-1", "copy", LONG)
    assert (second.holder, second.token) == ("copy", first.token + 1)
    with pytest.raises(Busy, match=r"run-1 \(copy\) took it"):
        store.renew_lease(first, LONG)


def test_a_lease_that_expired_while_it_was_reserved_is_anybodys(store: WatermarkStore) -> None:
    store.hand_over_lease(store.acquire_lease(NAME, "run-1", "plan", LONG), 0.05)
    until(lambda: store.lease_of(NAME) is None)
    taken = store.acquire_lease(NAME, "run-2", "plan", LONG)
    with pytest.raises(Busy, match=r"run-2 \(plan\)"):
        store.acquire_lease(NAME, "run-1", "copy", LONG)
    assert store.lease_of(NAME) == taken


def test_a_reserved_lease_that_nobody_took_is_still_its_runs(store: WatermarkStore) -> None:
    store.hand_over_lease(store.acquire_lease(NAME, "run-1", "plan", LONG), 0.05)
    until(lambda: store.lease_of(NAME) is None)
    assert store.acquire_lease(NAME, "run-1", "copy", LONG).holder == "copy"


@pytest.mark.parametrize("release", ["always", "on failure", "never"])
def test_an_attempt_that_fails_late_takes_nothing_from_its_successor(store: WatermarkStore, release: Release) -> None:
    """The first try of a task lost its heartbeat and slept; its successor took over when the lease had expired."""
    lease = store.acquire_lease(NAME, "run-1", "try-1", LONG)
    held = HeldLease(store, lease, LONG, release=release)
    held.__enter__()
    store.renew_lease(held.lease, 0.01)
    successor = wait_for_lease(store, NAME, "run-1", "try-2", LONG, 20)
    held.__exit__(RuntimeError, RuntimeError("late"), None)
    assert store.lease_of(NAME) == successor


def test_an_attempt_that_was_superseded_has_to_stop(store: WatermarkStore) -> None:
    with HeldLease(store, store.acquire_lease(NAME, "run-1", "try-1", 3), 3) as held:
        store.renew_lease(held.lease, 0.01)
        successor = wait_for_lease(store, NAME, "run-1", "try-2", LONG, 20)
        until(lambda: held.lost)
        with pytest.raises(Busy, match=r"run-1 \(try-1\) no longer holds .* run-1 \(try-2\) took it"):
            held.check()
    assert store.lease_of(NAME) == successor


def test_the_next_attempt_waits_until_a_killed_one_has_expired(store: WatermarkStore) -> None:
    """Another run may not wait at all; the next attempt of the same run waits for as long as a lease lasts."""
    killed = store.acquire_lease(NAME, "run-1", "try-1", 1)
    with pytest.raises(Busy):
        wait_for_lease(store, NAME, "run-2", "try-1", LONG, 0)
    assert wait_for_lease(store, NAME, "run-1", "try-2", LONG, 0).token == killed.token + 1


@pytest.mark.parametrize(("release", "given_back"), [("always", True), ("on failure", True), ("never", False)])
def test_what_becomes_of_the_lease_of_an_attempt_that_fails(
    store: WatermarkStore, release: Release, given_back: bool
) -> None:
    lease = store.acquire_lease(NAME, "run-1", "plan", LONG)
    with pytest.raises(RuntimeError), HeldLease(store, lease, LONG, release=release):
        raise RuntimeError("failed")
    assert (store.lease_of(NAME) is None) == given_back
    assert store.acquire_lease(NAME, "run-1", "plan again", LONG).holder == "plan again"


# Holding a lease


def test_a_held_lease_is_renewed_beyond_its_duration_and_given_back(store: WatermarkStore) -> None:
    first = store.acquire_lease(NAME, "run-1", "try-1", 1.5)
    with HeldLease(store, first, 1.5, release="always") as held:
        until(lambda: held.lease.expires_at - first.expires_at > timedelta(seconds=2))
        held.check()
        assert not held.lost
        with pytest.raises(Busy):
            store.acquire_lease(NAME, "run-2", "try-1", LONG)
    assert store.lease_of(NAME) is None


def test_a_held_lease_stays_reserved_for_its_run_unless_release_is_asked_for(store: WatermarkStore) -> None:
    with HeldLease(store, store.acquire_lease(NAME, "run-1", "try-1", LONG), LONG) as held:
        pass
    left = store.lease_of(NAME)
    assert left is not None
    assert (left.owner, left.holder, left.token) == ("run-1", None, held.lease.token)


def test_the_holder_learns_that_another_has_the_lease(store: WatermarkStore) -> None:
    lease = store.acquire_lease(NAME, "run-1", "try-1", 5)
    with HeldLease(store, lease, 5, release="always") as held:
        held.check()
        store.release_lease(lease)
        other = store.acquire_lease(NAME, "run-2", "try-1", LONG)
        until(lambda: held.lost)
        with pytest.raises(Busy, match=r"run-2 \(try-1\) took it"):
            held.check()
    assert store.lease_of(NAME) == other


def test_the_holder_counts_the_lease_as_lost_when_the_store_stays_away(
    store: WatermarkStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with HeldLease(store, store.acquire_lease(NAME, "run-1", "try-1", 0.6), 0.6) as held:

        def away(*_: object) -> None:
            raise Unreachable("the store is away")

        monkeypatch.setattr(store, "renew_lease", away)
        assert not held.lost
        until(lambda: held.lost)
        with pytest.raises(Busy, match=r"could not renew the lease of orders-dr for 0\.6 s"):
            held.check()


def test_entering_with_a_lease_that_is_gone_fails(store: WatermarkStore) -> None:
    lease = store.acquire_lease(NAME, "run-1", "try-1", LONG)
    store.release_lease(lease)
    with pytest.raises(Busy), HeldLease(store, lease, LONG):
        raise AssertionError("the body must not run")
