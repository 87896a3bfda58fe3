"""What every watermark store must do with the boundaries of data intervals."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

from kafka_replication.model.offsets import TopicPartition
from kafka_replication.store import open_store
from kafka_replication.store.watermark_store import WatermarkStore
from kafka_replication.watermarks.rules import BoundaryKey

NAME = "orders-dr"
SIX = datetime(2024, 1, 31, 6, tzinfo=UTC)
HOUR = timedelta(hours=1)
ONE, OTHER = (BoundaryKey(TopicPartition("orders", number), "id-1") for number in (0, 1))


def test_the_first_to_ask_decides_for_ever(store: WatermarkStore, store_url: str) -> None:
    assert store.store_boundaries(NAME, SIX, {ONE: 2**62, OTHER: 0}) == {ONE: 2**62, OTHER: 0}
    assert store.store_boundaries(NAME, SIX, {ONE: 7}) == {ONE: 2**62}
    again = open_store(store_url)
    assert again.store_boundaries(NAME, SIX, {ONE: 7, OTHER: 9}) == {ONE: 2**62, OTHER: 0}
    again.close()


def test_the_newest_boundary(store: WatermarkStore) -> None:
    assert store.newest_boundary(NAME) is None
    store.store_boundaries(NAME, SIX + HOUR, {ONE: 7})
    store.store_boundaries(NAME, SIX, {OTHER: 7})
    store.store_boundaries("another", SIX + 2 * HOUR, {ONE: 7})
    assert store.newest_boundary(NAME) == SIX + HOUR


def test_a_boundary_does_not_pass_what_was_copied_while_earlier_ones_are_lost(store: WatermarkStore) -> None:
    assert store.store_boundaries(NAME, SIX, {ONE: 50, OTHER: 50}, {ONE: 20}) == {ONE: 20, OTHER: 50}
    assert store.store_boundaries(NAME, SIX + HOUR, {ONE: 90}, {ONE: 20}) == {ONE: 90}


def test_boundaries_of_others_are_others(store: WatermarkStore) -> None:
    recreated = BoundaryKey(ONE.at, "id-2")
    store.store_boundaries(NAME, SIX, {ONE: 10})
    assert store.store_boundaries("another", SIX, {ONE: 20}) == {ONE: 20}
    assert store.store_boundaries(NAME, SIX, {recreated: 3}) == {recreated: 3}
    assert store.store_boundaries(NAME, SIX + HOUR, {recreated: 5, OTHER: 1}) == {recreated: 5, OTHER: 1}


def test_a_boundary_lies_between_those_of_earlier_and_of_later_times(store: WatermarkStore) -> None:
    store.store_boundaries(NAME, SIX, {ONE: 100})
    store.store_boundaries(NAME, SIX + 4 * HOUR, {ONE: 200})
    assert store.store_boundaries(NAME, SIX + 2 * HOUR, {ONE: 250}) == {ONE: 200}
    assert store.store_boundaries(NAME, SIX + HOUR, {ONE: 50}) == {ONE: 100}
    assert store.store_boundaries(NAME, SIX - HOUR, {ONE: 170}) == {ONE: 100}
    assert store.store_boundaries(NAME, SIX + 9 * HOUR, {ONE: 0}) == {ONE: 200}


def test_two_that_ask_at_once_get_one_answer(store_url: str, store: WatermarkStore) -> None:
    answers: list[int] = []

    def ask(offset: int) -> None:
        mine = open_store(store_url)
        answers.append(mine.store_boundaries(NAME, SIX, {ONE: offset})[ONE])
        mine.close()

    threads = [threading.Thread(target=ask, args=(offset,)) for offset in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert len(answers) == 6 and len(set(answers)) == 1
