"""What every watermark store must do with leases, and what holding one means; `conftest` says which stores."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any

import pytest

from kafka_replication.model.errors import Busy, Unreachable
from kafka_replication.model.offsets import PartitionKey, TopicPartition
from kafka_replication.store import connect, database, leases, runs
from kafka_replication.store.held_lease import HeldLease, Release, Terms
from kafka_replication.store.watermark_store import WatermarkStore
from kafka_replication.watermarks import values as domain
from kafka_replication.watermarks.values import Claim, Lease
from tests.support import watermarks
from tests.support.leases import acquire, exactly, hand_over, holder_of, live, wait
from tests.support.waiting import wait_until

NAME = "orders-dr"
KEY = PartitionKey(NAME, TopicPartition("orders", 3), "orders")
LONG = 60.0


def terms(seconds: float) -> Terms:
    return Terms(duration=seconds, wait=0)


# Leases


def test_the_second_owner_is_told_who_holds_the_lease_and_until_when(store: WatermarkStore) -> None:
    held = acquire(store, NAME, "run-1", "try-1", LONG)
    assert held.expires_at - held.acquired_at == timedelta(seconds=LONG)
    assert holder_of(store, NAME) == held
    with pytest.raises(Busy, match=f"orders-dr .* run-1 .try-1., .*{held.expires_at:%Y-%m-%dT%H:%M:%SZ}"):
        acquire(store, NAME, "run-2", "try-1", LONG)
    assert acquire(store, "another", "run-2", "try-1", LONG).owner == "run-2"


def test_acquiring_again_renews_under_the_same_token(store: WatermarkStore) -> None:
    first = acquire(store, NAME, "run-1", "try-1", LONG)
    again = acquire(store, NAME, "run-1", "try-1", 2 * LONG)
    assert (again.token, again.acquired_at) == (first.token, first.acquired_at)
    assert again.expires_at >= first.expires_at + timedelta(seconds=LONG)
    assert store.renew_lease(first, 3 * LONG).expires_at > again.expires_at


def test_a_lease_given_back_is_free_at_once_and_its_token_never_returns(store: WatermarkStore) -> None:
    tokens = []
    for number in range(4):
        lease = acquire(store, NAME, f"run-{number % 2}", "try-1", LONG)
        tokens.append(lease.token)
        store.release_lease(lease)
        store.release_lease(lease)
        assert holder_of(store, NAME) is None
    assert tokens == [1, 2, 3, 4]


def test_an_old_holder_can_neither_release_nor_renew_what_another_holds(store: WatermarkStore) -> None:
    old = acquire(store, NAME, "run-1", "try-1", LONG)
    store.release_lease(old)
    new = acquire(store, NAME, "run-2", "try-1", LONG)
    store.release_lease(old)
    assert holder_of(store, NAME) == new
    with pytest.raises(Busy, match=r"run-1 \(try-1\) no longer holds the lease of orders-dr"):
        store.renew_lease(old, LONG)


def test_the_same_owner_cannot_use_a_handle_from_before_it_gave_the_lease_back(store: WatermarkStore) -> None:
    old = acquire(store, NAME, "run-1", "try-1", LONG)
    store.release_lease(old)
    with pytest.raises(Busy, match="it was released"):
        store.renew_lease(old, LONG)
    new = acquire(store, NAME, "run-1", "try-1", LONG)
    store.release_lease(old)
    assert holder_of(store, NAME) == new


def test_an_expired_lease_is_taken_over_with_a_higher_token(store: WatermarkStore) -> None:
    short = acquire(store, NAME, "dead", "try-1", 0.3)
    taken = wait(store, NAME, "run-2", "try-1", LONG, 20)
    assert taken.token == short.token + 1
    assert taken.acquired_at >= short.expires_at
    with pytest.raises(Busy, match=r"dead \(try-1\) no longer holds"):
        store.renew_lease(short, LONG)


def test_an_expired_lease_nobody_took_is_still_its_owners(store: WatermarkStore) -> None:
    short = acquire(store, NAME, "run-1", "try-1", 0.05)
    wait_until(lambda: holder_of(store, NAME) is None)
    assert store.renew_lease(short, LONG).token == short.token
    with pytest.raises(Busy):
        acquire(store, NAME, "run-2", "try-1", LONG)


def test_the_clock_of_this_process_does_not_matter(store: WatermarkStore, monkeypatch: pytest.MonkeyPatch) -> None:
    real = acquire(store, NAME, "run-1", "try-1", LONG)

    class Tomorrow(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + timedelta(days=1)

    now, now_ns, day = time.time, time.time_ns, 86400
    monkeypatch.setattr(time, "time", lambda: now() + day)
    monkeypatch.setattr(time, "time_ns", lambda: now_ns() + day * 10**9)
    for module in (domain, connect, database, leases, runs):
        monkeypatch.setattr(module, "datetime", Tomorrow, raising=False)
    with pytest.raises(Busy):
        acquire(store, NAME, "run-2", "try-1", LONG)
    assert holder_of(store, NAME) == real
    assert store.renew_lease(real, LONG).expires_at - real.expires_at < timedelta(seconds=LONG)
    assert watermarks.advance(store, KEY, 1, None).updated_at - real.acquired_at < timedelta(seconds=LONG)


def test_waiting_for_the_lease_ends_naming_the_holder(store: WatermarkStore) -> None:
    acquire(store, NAME, "run-1", "try-1", LONG)
    started = time.monotonic()
    with pytest.raises(Busy, match=r"run-1.*run-2 waited 0\.2 s"):
        wait(store, NAME, "run-2", "try-1", LONG, 0.2)
    assert time.monotonic() - started >= 0.2


@pytest.mark.parametrize("seconds", [0, -1])
def test_a_lease_lasts(store: WatermarkStore, seconds: float) -> None:
    with pytest.raises(ValueError, match="more than 0 s"):
        acquire(store, NAME, "run-1", "try-1", seconds)


# Attempts


def test_another_attempt_of_the_same_run_waits_like_anybody_else(store: WatermarkStore) -> None:
    first = acquire(store, NAME, "run-1", "try-1", LONG)
    with pytest.raises(Busy, match=r"worked on by run-1 \(try-1\), whose lease ends"):
        acquire(store, NAME, "run-1", "try-2", LONG)
    assert store.renew_lease(first, LONG).token == first.token


def test_a_lease_handed_over_is_for_the_next_attempt_of_its_run_only(store: WatermarkStore) -> None:
    first = acquire(store, NAME, "run-1", "plan", LONG)
    hand_over(store, first, 2 * LONG)
    hand_over(store, first, 3 * LONG)  # repeated after an unknown outcome: nothing more happens
    reserved = holder_of(store, NAME)
    assert reserved is not None
    assert (reserved.owner, reserved.holder) == ("run-1", None)
    assert timedelta(seconds=2 * LONG) <= reserved.expires_at - first.acquired_at < timedelta(seconds=3 * LONG)
    with pytest.raises(Busy, match="worked on by run-1, whose lease ends"):
        acquire(store, NAME, "run-2", "plan", LONG)
    with pytest.raises(Busy, match="it is reserved for the next task of run-1"):
        store.renew_lease(first, LONG)
    second = acquire(store, NAME, "run-1", "copy", LONG)
    assert (second.holder, second.token) == ("copy", first.token + 1)
    with pytest.raises(Busy, match=r"run-1 \(copy\) took it"):
        store.renew_lease(first, LONG)


def test_a_lease_that_expired_while_it_was_reserved_is_anybodys(store: WatermarkStore) -> None:
    hand_over(store, acquire(store, NAME, "run-1", "plan", LONG), 0.05)
    wait_until(lambda: holder_of(store, NAME) is None)
    taken = acquire(store, NAME, "run-2", "plan", LONG)
    with pytest.raises(Busy, match=r"run-2 \(plan\)"):
        acquire(store, NAME, "run-1", "copy", LONG)
    assert holder_of(store, NAME) == taken


def test_a_reserved_lease_that_nobody_took_is_still_its_runs(store: WatermarkStore) -> None:
    hand_over(store, acquire(store, NAME, "run-1", "plan", LONG), 0.05)
    wait_until(lambda: holder_of(store, NAME) is None)
    assert acquire(store, NAME, "run-1", "copy", LONG).holder == "copy"


@pytest.mark.parametrize("release", ["always", "on failure", "never"])
def test_an_attempt_that_fails_late_takes_nothing_from_its_successor(store: WatermarkStore, release: Release) -> None:
    """The first try of a task lost its heartbeat and slept; its successor took over when the lease had expired."""
    lease = acquire(store, NAME, "run-1", "try-1", LONG)
    held = HeldLease(store, lease, terms(LONG), release=release)
    held.__enter__()
    store.renew_lease(held.lease, 0.01)
    successor = wait(store, NAME, "run-1", "try-2", LONG, 20)
    held.__exit__(RuntimeError, RuntimeError("late"), None)
    assert holder_of(store, NAME) == successor


def test_an_attempt_that_was_superseded_has_to_stop(store: WatermarkStore) -> None:
    with HeldLease(store, acquire(store, NAME, "run-1", "try-1", 3), terms(3)) as held:
        store.renew_lease(held.lease, 0.01)
        successor = wait(store, NAME, "run-1", "try-2", LONG, 20)
        wait_until(lambda: held.lost)
        with pytest.raises(Busy, match=r"run-1 \(try-1\) no longer holds .* run-1 \(try-2\) took it"):
            held.check()
    assert holder_of(store, NAME) == successor


def test_the_next_attempt_waits_until_a_killed_one_has_expired(store: WatermarkStore) -> None:
    """Another run may not wait at all; the next attempt of the same run waits for as long as a lease lasts."""
    killed = acquire(store, NAME, "run-1", "try-1", 1)
    with pytest.raises(Busy):
        wait(store, NAME, "run-2", "try-1", LONG, 0)
    assert wait(store, NAME, "run-1", "try-2", LONG, 0).token == killed.token + 1


@pytest.fixture
def late(store: WatermarkStore, monkeypatch: pytest.MonkeyPatch) -> list[Busy]:
    """The refusals, each of which arrives only when the lease that it names has ended."""
    real, answers = store.acquire_lease, list[Busy]()

    def acquire_late(claim: Claim, seconds: float) -> Lease:
        try:
            return real(claim, seconds)
        except Busy as busy:
            answers.append(busy)
            wait_until(lambda: holder_of(store, NAME) is None)
            raise

    monkeypatch.setattr(store, "acquire_lease", acquire_late)
    return answers


def test_the_next_attempt_decides_on_what_it_was_told(store: WatermarkStore, late: list[Busy]) -> None:
    killed = acquire(store, NAME, "run-1", "try-1", 1)
    assert wait(store, NAME, "run-1", "try-2", LONG, 0).token == killed.token + 1
    assert [(busy.owner, busy.holder) for busy in late] == [("run-1", "try-1")]


@pytest.mark.usefixtures("late")
def test_whoever_gives_up_has_looked_after_its_time_to_wait(store: WatermarkStore) -> None:
    acquire(store, NAME, "run-1", "try-1", 1)
    assert wait(store, NAME, "run-2", "try-1", LONG, 0.01).owner == "run-2"


@pytest.mark.parametrize(("release", "given_back"), [("always", True), ("on failure", True), ("never", False)])
def test_what_becomes_of_the_lease_of_an_attempt_that_fails(
    store: WatermarkStore, release: Release, given_back: bool
) -> None:
    lease = acquire(store, NAME, "run-1", "plan", LONG)
    with pytest.raises(RuntimeError), HeldLease(store, lease, terms(LONG), release=release):
        raise RuntimeError("failed")
    assert (holder_of(store, NAME) is None) == given_back
    assert acquire(store, NAME, "run-1", "plan again", LONG).holder == "plan again"


# Holding a lease


def test_a_held_lease_is_renewed_beyond_its_duration_and_given_back(store: WatermarkStore) -> None:
    first = acquire(store, NAME, "run-1", "try-1", 1.5)
    with HeldLease(store, first, terms(1.5), release="always") as held:
        wait_until(lambda: held.lease.expires_at - first.expires_at > timedelta(seconds=2))
        held.check()
        assert not held.lost
        with pytest.raises(Busy):
            acquire(store, NAME, "run-2", "try-1", LONG)
    assert holder_of(store, NAME) is None


def test_a_held_lease_stays_reserved_for_its_run_unless_release_is_asked_for(store: WatermarkStore) -> None:
    with HeldLease(store, acquire(store, NAME, "run-1", "try-1", LONG), terms(LONG)) as held:
        pass
    left = holder_of(store, NAME)
    assert left is not None
    assert (left.owner, left.holder, left.token) == ("run-1", None, held.lease.token)


def test_the_holder_learns_that_another_has_the_lease(store: WatermarkStore) -> None:
    lease = acquire(store, NAME, "run-1", "try-1", 5)
    with HeldLease(store, lease, terms(5), release="always") as held:
        held.check()
        store.release_lease(lease)
        other = acquire(store, NAME, "run-2", "try-1", LONG)
        wait_until(lambda: held.lost)
        with pytest.raises(Busy, match=r"run-1 \(try-1\) no longer holds"):
            held.check()
    assert holder_of(store, NAME) == other


def away(*_: object) -> None:
    raise Unreachable("the store is away")


def test_a_holder_in_doubt_asks_the_store(store: WatermarkStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a pause that was longer than the lease: nobody took it meanwhile, so the work goes on."""
    renew = store.renew_lease
    with HeldLease(store, acquire(store, NAME, "run-1", "try-1", 0.6), terms(0.6)) as held:
        monkeypatch.setattr(store, "renew_lease", away)
        wait_until(lambda: holder_of(store, NAME) is None)
        monkeypatch.setattr(store, "renew_lease", renew)
        held.check()
        wait_until(lambda: holder_of(store, NAME) == held.lease)  # its thread renews it between the two readings, too


def test_the_holder_stops_when_the_store_stays_away(store: WatermarkStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with HeldLease(store, acquire(store, NAME, "run-1", "try-1", 0.6), terms(0.6)) as held:
        monkeypatch.setattr(store, "renew_lease", away)
        held.check()
        wait_until(lambda: holder_of(store, NAME) is None)
        with pytest.raises(Busy, match=r"could not renew the lease of orders-dr .*the store is away"):
            held.check()


def test_entering_with_a_lease_that_is_gone_fails(store: WatermarkStore) -> None:
    lease = acquire(store, NAME, "run-1", "try-1", LONG)
    store.release_lease(lease)
    with pytest.raises(Busy), HeldLease(store, lease, terms(LONG)):
        raise AssertionError("the body must not run")


# Target topics


def test_runs_with_different_target_topics_hold_leases_at_once(store: WatermarkStore) -> None:
    one = acquire(store, NAME, "run-1", "try-1", LONG, exactly("orders", "audit"))
    other = acquire(store, NAME, "run-2", "try-1", LONG, exactly("restored"))
    assert store.leases(NAME) == [one, other]
    with pytest.raises(Busy, match="run-1"):
        acquire(store, NAME, "run-3", "try-1", LONG, exactly("audit", "elsewhere"))
    with pytest.raises(Busy):
        acquire(store, NAME, "run-4", "try-1", LONG)
    assert store.renew_lease(one, LONG).topics == one.topics


def test_a_live_run_takes_what_nobody_else_has(store: WatermarkStore) -> None:
    acquire(store, NAME, "backfill", "try-1", LONG, exactly("restored"))
    all_but = acquire(store, NAME, "live", "try-1", LONG, live("orders", "audit"))
    assert "orders" in all_but.topics and "restored" not in all_but.topics
    with pytest.raises(Busy, match="live"):
        acquire(store, NAME, "next", "try-1", LONG, exactly("orders"))
    narrow = store.renew_lease(all_but, LONG, exactly("orders").wants)
    assert "orders" in narrow.topics and "audit" not in narrow.topics
    assert "audit" in acquire(store, NAME, "next", "try-1", LONG, exactly("audit")).topics


def test_a_live_run_waits_for_its_topics_and_then_goes_without_them(store: WatermarkStore) -> None:
    acquire(store, NAME, "backfill", "try-1", LONG, exactly("orders"))
    with pytest.raises(Busy, match="backfill"):
        acquire(store, NAME, "live", "try-1", LONG, live("orders", "audit"))
    rest = wait(store, NAME, "live", "try-1", LONG, 0, live("orders", "audit"))
    assert "audit" in rest.topics and "orders" not in rest.topics


def test_who_waits_longer_comes_first(store: WatermarkStore) -> None:
    """A backfill that gives way between two slices does not get the topics back before the run that waits."""
    backfill = acquire(store, NAME, "backfill", "try-1", LONG, exactly("orders"))
    assert not store.give_way(backfill, LONG)
    with pytest.raises(Busy):
        acquire(store, NAME, "live", "try-1", LONG, exactly("orders"))
    assert store.give_way(backfill, LONG)
    assert store.give_way(backfill, LONG), "as if the answer to the first call had been lost"
    with pytest.raises(Busy, match=r"live .* waits longer"):
        acquire(store, NAME, "backfill", "try-1", LONG, exactly("orders"))
    assert acquire(store, NAME, "backfill-2", "try-1", LONG, exactly("audit")).topics
    taken = acquire(store, NAME, "live", "try-1", LONG, exactly("orders"))
    assert not taken.waiting
    store.release_lease(taken)
    assert acquire(store, NAME, "backfill", "try-1", LONG, exactly("orders")).topics == backfill.topics


def test_a_place_in_the_queue_ends_with_the_waiting(store: WatermarkStore) -> None:
    held = acquire(store, NAME, "run-1", "try-1", LONG, exactly("orders"))
    with pytest.raises(Busy):
        wait(store, NAME, "run-2", "try-1", LONG, 0, exactly("orders"))
    assert store.leases(NAME) == [held]
    with pytest.raises(Busy):
        acquire(store, NAME, "killed", "try-1", 0.05, exactly("orders"))
    wait_until(lambda: store.leases(NAME) == [held])
    assert not store.give_way(held, LONG)


def test_an_attempt_that_is_late_keeps_what_nobody_needs(store: WatermarkStore) -> None:
    late = acquire(store, NAME, "backfill", "try-1", 0.05, exactly("restored"))
    wait_until(lambda: store.leases(NAME) == [])
    taken = acquire(store, NAME, "live", "try-1", LONG, live("orders"))
    assert "restored" not in taken.topics
    assert store.renew_lease(late, LONG).topics == late.topics
