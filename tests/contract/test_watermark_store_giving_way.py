"""What every watermark store must do for a run that gives way to another one, and then goes on; `conftest` says which
stores.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import pytest

from kafka_replication.model.errors import Busy
from kafka_replication.store.held_lease import HeldLease, Terms
from kafka_replication.store.watermark_store import WatermarkStore
from tests.support.leases import acquire, exactly, wait
from tests.support.waiting import wait_until

NAME = "orders-dr"
LONG = 60.0
TERMS = Terms(duration=LONG, wait=0)


def test_a_holder_gives_way_and_goes_on(store: WatermarkStore) -> None:
    lease = acquire(store, NAME, "backfill", "try-1", LONG, exactly("orders"))
    taken = list[bool]()

    def work() -> None:
        waited = wait(store, NAME, "live", "try-1", LONG, 20, exactly("orders"))
        taken.append(True)
        store.release_lease(waited)

    with HeldLease(store, lease, TERMS, release="always") as held:
        assert not held.give_way(20)
        thread = threading.Thread(target=work)
        thread.start()
        wait_until(lambda: len(store.leases(NAME)) == 2)
        assert held.give_way(20)
        assert taken == [True]
        held.check()
        assert store.renew_lease(held.lease, LONG).token > lease.token
        thread.join(20)
    assert store.leases(NAME) == []


class Meddled:
    """A store in which another run tries to take the topics before and after each call."""

    def __init__(self, store: WatermarkStore) -> None:
        self.store, self.lives = store, set[tuple[str, bool]]()

    def meddle(self) -> None:
        with suppress(Busy):
            acquire(self.store, NAME, "live", "try-1", LONG, exactly("orders"))
        run = self.store.run("backfill")
        assert run is not None
        self.lives.add((run.state, run.alive))

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            self.meddle()
            try:
                return getattr(self.store, name)(*arguments)
            finally:
                self.meddle()

        return call


def test_a_run_that_gives_way_lives_whenever_another_one_looks(store: WatermarkStore) -> None:
    lease = acquire(store, NAME, "backfill", "try-1", LONG, exactly("orders"))
    store.start_run("backfill", NAME, "backfill", "{}")
    meddled: Any = Meddled(store)
    with pytest.raises(Busy, match="whose lease ends"), HeldLease(meddled, lease, TERMS) as held:
        held.give_way(0)
    assert meddled.lives == {("planned", True)}
    # Its next try is expected, and has the place.
    assert [other.owner for other in store.leases(NAME) if other.waiting] == ["backfill"]


def test_a_run_that_ends_while_it_gives_way_leaves_the_queue(store: WatermarkStore) -> None:
    lease = acquire(store, NAME, "backfill", "try-1", LONG, exactly("orders"))
    meddled: Any = Meddled(store)
    store.start_run("backfill", NAME, "backfill", "{}")
    with pytest.raises(Busy), HeldLease(meddled, lease, TERMS, release="always") as held:
        held.give_way(0)
    assert [other.owner for other in store.leases(NAME)] == ["live"]


def test_a_place_in_the_queue_that_has_just_expired_shows_that_its_run_lives(store: WatermarkStore) -> None:
    """Its process may have waited for the store."""
    lease = acquire(store, NAME, "backfill", "try-1", LONG, exactly("orders"))
    store.start_run("backfill", NAME, "backfill", "{}")
    with pytest.raises(Busy):
        acquire(store, NAME, "live", "try-1", LONG, exactly("orders"))
    assert store.give_way(lease, 0.001)
    wait_until(lambda: [other.owner for other in store.leases(NAME)] == ["live"])
    acquire(store, NAME, "live", "try-1", LONG, exactly("orders"))
    run = store.run("backfill")
    assert run is not None and run.state == "planned"
