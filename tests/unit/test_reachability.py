"""Asking if a worker can reach a cluster: once for all threads that begin at the same time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kafka_replication.kafka.preflight import reachability
from kafka_replication.model.errors import Unreachable
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.runtime.deadline import NEVER

CLUSTER = {"bootstrap.servers": "nowhere.invalid:1"}
THREADS = 8


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    reachability._answered.discard(CLUSTER["bootstrap.servers"])


def reach(number: int) -> None:
    reachability.check("source", CLUSTER, TopicPartition("orders", number), 1.0, NEVER)


def test_threads_that_begin_together_ask_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[Any]()

    def slowly(*of: Any) -> None:
        asked.append(of)
        time.sleep(0.2)

    monkeypatch.setattr(reachability, "_ask", slowly)
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(reach, range(THREADS)))
    assert len(asked) == 1
    assert not reachability._first


def test_a_thread_does_not_wait_long_for_another_and_fails_for_its_own_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = threading.Event()

    def ask(_: object, partition: TopicPartition, __: float) -> None:
        if partition.partition == 0:
            stuck.wait(30)
        if partition.partition == 1:
            raise Unreachable("no route to its leader", "")

    monkeypatch.setattr(reachability, "_ask", ask)
    monkeypatch.setattr(reachability, "_TO_WAIT", 0.1)
    monkeypatch.setattr(reachability, "ATTEMPTS", 1)
    with ThreadPoolExecutor(THREADS) as threads:
        first = threads.submit(reach, 0)
        try:
            with pytest.raises(Unreachable, match=r"orders-1: .* no route to its leader"):
                threads.submit(reach, 1).result(20)
            threads.submit(reach, 2).result(20)
        finally:
            stuck.set()
        first.result(20)
    assert not reachability._first
