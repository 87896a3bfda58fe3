"""Asking if a worker can reach a cluster: once for all threads that begin at the same time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kafka_replication.kafka import clients, reachability
from kafka_replication.model.errors import Unreachable
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.runtime.deadline import NEVER

THREADS = 8


def reach(cluster: str, number: int) -> None:
    """Each test has a cluster of its own: one that has answered is not asked again."""
    reachability.check("source", {"bootstrap.servers": cluster}, TopicPartition("orders", number), 1.0, NEVER)


class Admin:
    """A client whose question about a partition is this function."""

    def __init__(self, ask: Callable[[int], None]) -> None:
        self._ask = ask

    def list_offsets(self, request: Iterable[Any], request_timeout: float) -> dict[Any, Any]:
        assert request_timeout <= 1.0
        for at in request:
            self._ask(at.partition)
        return {}


def answering(monkeypatch: pytest.MonkeyPatch, ask: Callable[[int], None]) -> None:
    monkeypatch.setattr(clients, "admin", lambda config, *_: Admin(ask))


def test_threads_that_begin_together_ask_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, begun = list[int](), threading.Barrier(THREADS)

    def slowly(partition: int) -> None:
        asked.append(partition)
        time.sleep(0.2)

    def together(number: int) -> None:
        begun.wait(30)
        reach("together.invalid:1", number)

    answering(monkeypatch, slowly)
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(together, range(THREADS)))
    assert len(asked) == 1
    assert not reachability._first


def test_a_thread_does_not_wait_long_for_another_and_fails_for_its_own_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = threading.Event()

    def ask(partition: int) -> None:
        if partition == 0:
            stuck.wait(30)
        if partition == 1:
            raise Unreachable("no route to its leader", "")

    answering(monkeypatch, ask)
    monkeypatch.setattr(reachability, "TO_WAIT", 0.1)
    monkeypatch.setattr(reachability, "ATTEMPTS", 1)
    with ThreadPoolExecutor(THREADS) as threads:
        first = threads.submit(reach, "stuck.invalid:1", 0)
        try:
            with pytest.raises(Unreachable, match=r"orders-1: .* no route to its leader"):
                threads.submit(reach, "stuck.invalid:1", 1).result(20)
            threads.submit(reach, "stuck.invalid:1", 2).result(20)
        finally:
            stuck.set()
        first.result(20)
    assert not reachability._first
