"""What every watermark store must do with watermarks and leases; `conftest` says which stores."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_replication.model.errors import Busy, Refused, StaleWriter, Unreachable
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.store import connect, open_store, rows, sql
from kafka_replication.watermarks import store as domain
from kafka_replication.watermarks.lease import HeldLease, wait_for_lease
from kafka_replication.watermarks.store import WatermarkStore
from kafka_replication.watermarks.values import Watermark

NAME = "orders-dr"
KEY = PartitionKey(NAME, TopicPartition("orders", 3), "orders")
IDS = {"source_topic_id": "source-id", "target_topic_id": "target-id"}
LONG = 60.0


def advance(store: WatermarkStore, offset: int, version: int | None, **changed: Any) -> Watermark:
    values = {"generation": 1, "run_id": "run-1", **IDS, **changed}
    return store.advance(KEY, offset=offset, expected_version=version, **values)


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        threading.Event().wait(0.01)


# Watermarks


def test_a_new_store_knows_nothing(store: WatermarkStore) -> None:
    assert (store.watermarks(NAME), store.history(KEY), store.lease_of(NAME), store.runs(NAME)) == ({}, [], None, [])


def test_what_was_stored_is_there_after_reopening(store_url: str, store: WatermarkStore) -> None:
    first = advance(store, 2**62, None)
    other = PartitionKey("another", KEY.source, KEY.target_topic)
    store.advance(other, generation=0, offset=1, expected_version=None, run_id="run-1", **IDS)
    assert open_store(store_url).watermarks(NAME) == {KEY: first}
    assert (first.offset, first.version, first.run_id, first.generation) == (2**62, 1, "run-1", 1)


def test_each_change_moves_the_version_by_one_and_is_kept(store: WatermarkStore) -> None:
    changes = [advance(store, 10, None), advance(store, 25, 1, run_id="run-2"), advance(store, 26, 2)]
    assert [mark.version for mark in changes] == [1, 2, 3]
    assert store.history(KEY) == changes
    assert store.watermarks(NAME)[KEY] == changes[-1]


@pytest.mark.parametrize(("offset", "version"), [(25, 2), (25, 1), (25, None), (10, 2), (0, 77)])
def test_storing_the_same_or_less_succeeds_and_changes_nothing(
    store: WatermarkStore, offset: int, version: int | None
) -> None:
    advance(store, 10, None)
    stored = advance(store, 25, 1)
    assert advance(store, offset, version, run_id="run-2") == stored
    assert len(store.history(KEY)) == 2


def test_a_restored_watermark_is_what_was_asked_for_and_its_version_moves_forward(store: WatermarkStore) -> None:
    advance(store, 10, None)
    advance(store, 25, 1)
    restored = store.restore(KEY, generation=1, offset=7, expected_version=2, run_id="run-9", **IDS)
    assert (restored.offset, restored.version, restored.run_id) == (7, 3, "run-9")
    assert store.watermarks(NAME)[KEY] == restored
    assert store.restore(KEY, generation=1, offset=7, expected_version=3, run_id="run-10", **IDS) == restored
    assert [mark.version for mark in store.history(KEY)] == [1, 2, 3]


@pytest.mark.parametrize("version", [None, 1])
def test_a_watermark_that_moved_since_it_was_read_is_not_restored(store: WatermarkStore, version: int | None) -> None:
    advance(store, 10, None)
    newest = advance(store, 25, 1)
    with pytest.raises(StaleWriter, match="run-1 stored 25"):
        store.restore(KEY, generation=1, offset=7, expected_version=version, run_id="run-9", **IDS)
    assert store.watermarks(NAME)[KEY] == newest


def test_an_empty_store_takes_what_is_restored(store: WatermarkStore) -> None:
    restored = store.restore(KEY, generation=3, offset=7, expected_version=None, run_id="run-9", **IDS)
    assert (restored.offset, restored.generation, restored.version) == (7, 3, 1)


@pytest.mark.parametrize("version", [None, 0, 2, 77])
def test_a_wrong_version_is_refused_naming_who_stored_what_and_when(store: WatermarkStore, version: int | None) -> None:
    stored = advance(store, 10, None, run_id="run-of-bob")
    with pytest.raises(StaleWriter, match=f"orders-3.*run-of-bob stored 10 .*{stored.updated_at:%Y-%m-%dT%H:%M:%S}"):
        advance(store, 11, version, run_id="mine")
    assert store.history(KEY) == [stored]


def test_expecting_a_version_of_an_empty_store_is_refused(store: WatermarkStore) -> None:
    with pytest.raises(
        StaleWriter, match=r"version 4 was expected, but the store holds no watermark.*rebuild .* from the ledger"
    ):
        advance(store, 10, 4)


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("offset", [5, 10, 15])
def test_a_recreated_topic_is_refused_whatever_the_offset(store: WatermarkStore, side: str, offset: int) -> None:
    advance(store, 10, None)
    with pytest.raises(Refused, match=f"the {side} topic was re-created: its id is new-id, .* for topic id {side}-id"):
        advance(store, offset, 1, **{f"{side}_topic_id": "new-id"})


def test_a_new_generation_starts_lower_and_ends_the_old_one(store: WatermarkStore) -> None:
    advance(store, 100, None)
    with pytest.raises(StaleWriter):
        advance(store, 5, None, generation=2, source_topic_id="new-id")
    assert advance(store, 5, 1, generation=2, source_topic_id="new-id").offset == 5
    with pytest.raises(StaleWriter, match="generation 1 is over"):
        advance(store, 101, 2)


CALL = st.tuples(
    st.integers(1, 3),  # generation
    st.sampled_from(["id-a", "id-a", "id-a", "id-b"]),
    st.integers(0, 6),  # offset
    st.one_of(st.none(), st.integers(1, 8), st.just(-1)),  # expected version; -1 stands for the stored one
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(calls=st.lists(CALL, max_size=14))
def test_no_interleaving_moves_a_watermark_back_or_a_version_other_than_by_one(
    store: WatermarkStore, calls: list[tuple[int, str, int, int | None]]
) -> None:
    key = PartitionKey(f"property-{uuid.uuid4()}", KEY.source, KEY.target_topic)
    for number, (generation, topic_id, offset, expected) in enumerate(calls):
        before = store.watermarks(key.replication).get(key)
        version = (before.version if before else None) if expected == -1 else expected
        ids = {"source_topic_id": topic_id, "target_topic_id": "target-id"}
        try:
            returned = store.advance(
                key, generation=generation, offset=offset, expected_version=version, run_id=f"r{number}", **ids
            )
        except Refused:
            assert store.watermarks(key.replication).get(key) == before
            continue
        after = store.watermarks(key.replication)[key]
        assert returned == after
        if before is not None and after != before:
            assert (after.generation, after.offset) > (before.generation, before.offset)
            assert (after.version, after.run_id, version) == (before.version + 1, f"r{number}", before.version)
            assert after.generation > before.generation or after.source_topic_id == before.source_topic_id
    assert [mark.version for mark in store.history(key)] == list(range(1, len(store.history(key)) + 1))


# Leases


def test_the_second_owner_is_told_who_holds_the_lease_and_until_when(store: WatermarkStore) -> None:
    held = store.acquire_lease(NAME, "run-1", LONG)
    assert held.expires_at - held.acquired_at == timedelta(seconds=LONG)
    assert store.lease_of(NAME) == held
    with pytest.raises(Busy, match=f"orders-dr .* run-1, .*{held.expires_at:%Y-%m-%dT%H:%M:%SZ}"):
        store.acquire_lease(NAME, "run-2", LONG)
    assert store.acquire_lease("another", "run-2", LONG).owner == "run-2"


def test_acquiring_again_renews_under_the_same_token(store: WatermarkStore) -> None:
    first = store.acquire_lease(NAME, "run-1", LONG)
    again = store.acquire_lease(NAME, "run-1", 2 * LONG)
    assert (again.token, again.acquired_at) == (first.token, first.acquired_at)
    assert again.expires_at >= first.expires_at + timedelta(seconds=LONG)
    assert store.renew_lease(first, 3 * LONG).expires_at > again.expires_at


def test_a_lease_given_back_is_free_at_once_and_its_token_never_returns(store: WatermarkStore) -> None:
    tokens = []
    for number in range(4):
        lease = store.acquire_lease(NAME, f"run-{number % 2}", LONG)
        tokens.append(lease.token)
        store.release_lease(lease)
        store.release_lease(lease)
        assert store.lease_of(NAME) is None
    assert tokens == [1, 2, 3, 4]


def test_an_old_holder_can_neither_release_nor_renew_what_another_holds(store: WatermarkStore) -> None:
    old = store.acquire_lease(NAME, "run-1", LONG)
    store.release_lease(old)
    new = store.acquire_lease(NAME, "run-2", LONG)
    store.release_lease(old)
    assert store.lease_of(NAME) == new
    with pytest.raises(Busy, match="run-1 no longer holds the lease of orders-dr: run-2 took it"):
        store.renew_lease(old, LONG)


def test_the_same_owner_cannot_use_a_handle_from_before_it_gave_the_lease_back(store: WatermarkStore) -> None:
    old = store.acquire_lease(NAME, "run-1", LONG)
    store.release_lease(old)
    with pytest.raises(Busy, match="given back"):
        store.renew_lease(old, LONG)
    new = store.acquire_lease(NAME, "run-1", LONG)
    store.release_lease(old)
    assert store.lease_of(NAME) == new


def test_an_expired_lease_is_taken_over_with_a_higher_token(store: WatermarkStore) -> None:
    short = store.acquire_lease(NAME, "dead", 0.3)
    taken = wait_for_lease(store, NAME, "run-2", LONG, 20)
    assert taken.token == short.token + 1
    assert taken.acquired_at >= short.expires_at
    with pytest.raises(Busy, match="run-2 took it"):
        store.renew_lease(short, LONG)


def test_an_expired_lease_nobody_took_is_still_its_owners(store: WatermarkStore) -> None:
    short = store.acquire_lease(NAME, "run-1", 0.05)
    until(lambda: store.lease_of(NAME) is None)
    assert store.renew_lease(short, LONG).token == short.token
    with pytest.raises(Busy):
        store.acquire_lease(NAME, "run-2", LONG)


def test_the_clock_of_this_process_does_not_matter(store: WatermarkStore, monkeypatch: pytest.MonkeyPatch) -> None:
    real = store.acquire_lease(NAME, "run-1", LONG)

    class Tomorrow(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + timedelta(days=1)

    now, now_ns, day = time.time, time.time_ns, 86400
    monkeypatch.setattr(time, "time", lambda: now() + day)
    monkeypatch.setattr(time, "time_ns", lambda: now_ns() + day * 10**9)
    for module in (domain, connect, rows, sql):
        monkeypatch.setattr(module, "datetime", Tomorrow, raising=False)
    with pytest.raises(Busy):
        store.acquire_lease(NAME, "run-2", LONG)
    assert store.lease_of(NAME) == real
    assert store.renew_lease(real, LONG).expires_at - real.expires_at < timedelta(seconds=LONG)
    assert advance(store, 1, None).updated_at - real.acquired_at < timedelta(seconds=LONG)


def test_waiting_for_the_lease_ends_naming_the_holder(store: WatermarkStore) -> None:
    store.acquire_lease(NAME, "run-1", LONG)
    started = time.monotonic()
    with pytest.raises(Busy, match=r"run-1.*run-2 waited 0\.2 s"):
        wait_for_lease(store, NAME, "run-2", LONG, 0.2)
    assert 0.2 <= time.monotonic() - started < 10


@pytest.mark.parametrize("seconds", [0, -1])
def test_a_lease_lasts(store: WatermarkStore, seconds: float) -> None:
    with pytest.raises(ValueError, match="more than 0 s"):
        store.acquire_lease(NAME, "run-1", seconds)


# Holding a lease


def test_a_held_lease_is_renewed_beyond_its_duration_and_given_back(store: WatermarkStore) -> None:
    first = store.acquire_lease(NAME, "run-1", 1.5)
    with HeldLease(store, first, 1.5, release=True) as held:
        until(lambda: held.lease.expires_at - first.expires_at > timedelta(seconds=2))
        held.check()
        assert not held.lost
        with pytest.raises(Busy):
            store.acquire_lease(NAME, "run-2", LONG)
    assert store.lease_of(NAME) is None


def test_a_held_lease_stays_at_exit_unless_release_is_asked_for(store: WatermarkStore) -> None:
    with HeldLease(store, store.acquire_lease(NAME, "run-1", LONG), LONG):
        pass
    assert store.lease_of(NAME) is not None


def test_the_holder_learns_that_another_has_the_lease(store: WatermarkStore) -> None:
    lease = store.acquire_lease(NAME, "run-1", 5)
    with HeldLease(store, lease, 5, release=True) as held:
        held.check()
        store.release_lease(lease)
        other = store.acquire_lease(NAME, "run-2", LONG)
        until(lambda: held.lost)
        with pytest.raises(Busy, match="run-2 took it"):
            held.check()
    assert store.lease_of(NAME) == other


def test_the_holder_counts_the_lease_as_lost_when_the_store_stays_away(
    store: WatermarkStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with HeldLease(store, store.acquire_lease(NAME, "run-1", 0.6), 0.6) as held:

        def away(*_: object) -> None:
            raise Unreachable("the store is away")

        monkeypatch.setattr(store, "renew_lease", away)
        assert not held.lost
        until(lambda: held.lost)
        with pytest.raises(Busy, match=r"could not renew the lease of orders-dr for 0\.6 s"):
            held.check()


def test_entering_with_a_lease_that_is_gone_fails(store: WatermarkStore) -> None:
    lease = store.acquire_lease(NAME, "run-1", LONG)
    store.release_lease(lease)
    with pytest.raises(Busy), HeldLease(store, lease, LONG):
        raise AssertionError("the body must not run")
