"""Threads that ask at the same time share one request, and no answer is older than its question."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka.admin import AdminClient

from kafka_replication.kafka.consumer_pool import OfEachAdmin, SharedRead
from tests.support.waiting import SAFETY, wait_until


def test_those_who_ask_during_a_request_share_the_next_one() -> None:
    shared: SharedRead[str, int] = SharedRead()
    requests: list[set[str]] = []
    first_is_under_way, go_on = threading.Event(), threading.Event()

    def read(keys: set[str]) -> Mapping[str, int]:
        number = len(requests)
        if not number:
            first_is_under_way.set()
            assert go_on.wait(SAFETY)
        requests.append(set(keys))
        return {key: number for key in keys if key != "unknown"}

    with ThreadPoolExecutor(8) as threads:
        first = threads.submit(shared.ask, "a", read)
        assert first_is_under_way.wait(SAFETY)
        later = [threads.submit(shared.ask, key, read) for key in ("a", "b", "a", "unknown")]
        wait_until(lambda: shared._next[0] == {"a", "b", "unknown"})
        go_on.set()
        assert first.result() == 0
        assert [asked.result() for asked in later] == [1, 1, 1, None], "none got the answer from before its question"
    assert requests == [{"a"}, {"a", "b", "unknown"}]


def test_an_error_reaches_all_who_share_the_request_and_not_the_next() -> None:
    shared: SharedRead[str, int] = SharedRead()

    def fails(_: set[str]) -> Mapping[str, int]:
        raise OSError("no answer")

    with pytest.raises(OSError, match="no answer"):
        shared.ask("a", fails)
    assert shared.ask("a", lambda keys: dict.fromkeys(keys, 1)) == 1


def test_every_question_is_answered_under_load() -> None:
    shared: SharedRead[int, int] = SharedRead()
    with ThreadPoolExecutor(16) as threads:
        answers = threads.map(lambda n: shared.ask(n % 7, lambda keys: {key: key * 10 for key in keys}), range(2_000))
    assert list(answers) == [n % 7 * 10 for n in range(2_000)]


def test_each_admin_client_keeps_a_value_of_its_own() -> None:
    one, other = (AdminClient({"bootstrap.servers": "127.0.0.1:1"}) for _ in range(2))
    lists: OfEachAdmin[list[str]] = OfEachAdmin(list)
    kept = lists.of(one)

    assert lists.of(one) is kept
    assert lists.of(other) is not kept
