"""What every watermark store must do with watermarks and leases; `conftest` says which stores."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_replication.model.errors import Refused, StaleWriter
from kafka_replication.model.offsets import PartitionKey, TopicPartition
from kafka_replication.store import open_store
from kafka_replication.store.watermark_store import WatermarkStore
from kafka_replication.watermarks.values import Watermark
from tests.support import watermarks

NAME = "orders-dr"
KEY = PartitionKey(NAME, TopicPartition("orders", 3), "orders")
LONG = 60.0


def advance(store: WatermarkStore, offset: int, version: int | None, **changed: Any) -> Watermark:
    return watermarks.advance(store, KEY, offset, version, **changed)


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        threading.Event().wait(0.01)


# Watermarks


def test_a_new_store_knows_nothing(store: WatermarkStore) -> None:
    assert (store.watermarks(NAME), store.leases(NAME), store.runs(NAME)) == ({}, [], [])


def test_what_was_stored_is_there_after_reopening(store_url: str, store: WatermarkStore) -> None:
    first = advance(store, 2**62, None)
    other = PartitionKey("another", KEY.source, KEY.target_topic)
    watermarks.advance(store, other, 1, None, generation=0)
    assert open_store(store_url).watermarks(NAME) == {KEY: first}
    assert (first.offset, first.version, first.run_id, first.generation) == (2**62, 1, "run-1", 1)


def test_each_change_moves_the_version_by_one(store: WatermarkStore) -> None:
    changes = [advance(store, 10, None), advance(store, 25, 1, run_id="run-2"), advance(store, 26, 2)]
    assert [mark.version for mark in changes] == [1, 2, 3]
    assert store.watermarks(NAME)[KEY] == changes[-1]


@pytest.mark.parametrize(("offset", "version"), [(25, 2), (25, 1), (25, None), (10, 2), (0, 77)])
def test_storing_the_same_or_less_succeeds_and_changes_nothing(
    store: WatermarkStore, offset: int, version: int | None
) -> None:
    advance(store, 10, None)
    stored = advance(store, 25, 1)
    assert advance(store, offset, version, run_id="run-2") == stored
    assert store.watermarks(NAME) == {KEY: stored}


def test_a_restored_watermark_is_what_was_asked_for_and_its_version_moves_forward(store: WatermarkStore) -> None:
    advance(store, 10, None)
    advance(store, 25, 1)
    restored = watermarks.restore(store, KEY, 7, 2, generation=1, run_id="run-9")
    assert (restored.offset, restored.version, restored.run_id) == (7, 3, "run-9")
    assert store.watermarks(NAME)[KEY] == restored
    assert watermarks.restore(store, KEY, 7, 3, generation=1, run_id="run-10") == restored


@pytest.mark.parametrize("version", [None, 1])
def test_a_watermark_that_moved_since_it_was_read_is_not_restored(store: WatermarkStore, version: int | None) -> None:
    advance(store, 10, None)
    newest = advance(store, 25, 1)
    with pytest.raises(StaleWriter, match="run-1 stored 25"):
        watermarks.restore(store, KEY, 7, version, generation=1, run_id="run-9")
    assert store.watermarks(NAME)[KEY] == newest


def test_an_empty_store_takes_what_is_restored(store: WatermarkStore) -> None:
    restored = watermarks.restore(store, KEY, 7, None, generation=3, run_id="run-9")
    assert (restored.offset, restored.generation, restored.version) == (7, 3, 1)


@pytest.mark.parametrize("version", [None, 0, 2, 77])
def test_a_wrong_version_is_refused_naming_who_stored_what_and_when(store: WatermarkStore, version: int | None) -> None:
    stored = advance(store, 10, None, run_id="run-of-bob")
    with pytest.raises(StaleWriter, match=f"orders-3.*run-of-bob stored 10 .*{stored.updated_at:%Y-%m-%dT%H:%M:%S}"):
        advance(store, 11, version, run_id="mine")
    assert store.watermarks(NAME) == {KEY: stored}


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


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(calls=st.lists(CALL, max_size=14))
def test_no_interleaving_moves_a_watermark_back_or_a_version_other_than_by_one(
    store: WatermarkStore, calls: list[tuple[int, str, int, int | None]]
) -> None:
    key = PartitionKey(f"property-{uuid.uuid4()}", KEY.source, KEY.target_topic)
    for number, (generation, topic_id, offset, expected) in enumerate(calls):
        before = store.watermarks(key.replication).get(key)
        version = (before.version if before else None) if expected == -1 else expected
        try:
            returned = watermarks.advance(
                store, key, offset, version, generation=generation, run_id=f"r{number}", source_topic_id=topic_id
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


# Many partitions at once


def keys(count: int) -> list[PartitionKey]:
    return [PartitionKey(NAME, TopicPartition("orders", number), "orders") for number in range(count)]


def test_many_partitions_move_at_once_and_an_error_stops_no_other(store: WatermarkStore) -> None:
    five = keys(5)
    store.advance_many([watermarks.change(key, 10, None) for key in five[:4]])
    results = store.advance_many(
        [
            watermarks.change(five[0], 20, 1),
            watermarks.change(five[1], 20, 7),
            watermarks.change(five[2], 20, 1, target_topic_id="new-id"),
            watermarks.change(five[3], 10, 1, run_id="run-2"),
            watermarks.change(five[4], 5, None),
        ]
    )
    assert isinstance(results[five[1]], StaleWriter)
    assert isinstance(results[five[2]], Refused)
    stored = store.watermarks(NAME)
    assert {key: results[key] for key in (five[0], five[3], five[4])} == {
        key: stored[key] for key in (five[0], five[3], five[4])
    }
    assert [(stored[key].offset, stored[key].version) for key in five] == [(20, 2), (10, 1), (10, 1), (10, 1), (5, 1)]


def test_more_partitions_than_a_statement_takes(store: WatermarkStore) -> None:
    many = keys(1001)
    first = store.advance_many([watermarks.change(key, 10, None) for key in many])
    assert store.watermarks(NAME) == first
    second = store.advance_many([watermarks.change(key, 10 + key.source.partition, 1) for key in many])
    assert store.watermarks(NAME) == second
    assert [mark.version for mark in store.watermarks(NAME).values()].count(2) == 1000, "the first did not change"


def test_what_does_not_change_takes_no_lock(store: WatermarkStore, monkeypatch: pytest.MonkeyPatch) -> None:
    advance(store, 10, None)

    def written(*_: object) -> None:
        raise AssertionError("nothing has changed")

    monkeypatch.setattr("kafka_replication.store.connect.limit_waits", written)  # the first step of each write
    assert advance(store, 10, 1).version == 1
    assert store.advance_many([]) == {}


def test_all_partitions_are_restored_or_none(store: WatermarkStore) -> None:
    three = keys(3)
    store.advance_many([watermarks.change(key, 10, None) for key in three])
    before = store.watermarks(NAME)
    with pytest.raises(StaleWriter):
        store.restore_many([watermarks.change(key, 5, 1 if key != three[1] else 9) for key in three])
    assert store.watermarks(NAME) == before
    assert store.restore_many([watermarks.change(key, 5, 1) for key in three]) == store.watermarks(NAME)
    assert {mark.offset for mark in store.watermarks(NAME).values()} == {5}
