"""A database server that is killed and comes back costs its users the waiting alone."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kafka_replication.model.offsets import PartitionKey, TopicPartition
from kafka_replication.store import open_store
from kafka_replication.store.connect import is_there
from kafka_replication.store.held_lease import HeldLease, Terms
from kafka_replication.store.watermark_store import WatermarkStore
from kafka_replication.watermarks.values import WatermarkChange
from tests.support.leases import acquire
from tests.support.postgresql import Server
from tests.support.waiting import wait_until

NAME = "orders-dr"
KEY = PartitionKey(NAME, TopicPartition("orders", 3), "orders")
CHANGE = WatermarkChange(
    key=KEY,
    generation=0,
    source_topic_id="source-id",
    target_topic_id="target-id",
    offset=7,
    expected_version=None,
    run_id="run-1",
)


def test_every_call_outlasts_a_server_that_is_killed(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    store = open_store(server.url)
    lease = acquire(store, NAME, "run-1", "try-1", 60)
    store.start_run("run-1", NAME, "live", "{}")
    with HeldLease(store, lease, Terms(duration=60, wait=0)) as held:
        calls: dict[str, Callable[[], Any]] = {
            "advance": lambda: store.advance_many([CHANGE])[KEY].offset,  # type: ignore[union-attr]
            "give way": lambda: held.give_way(10),
            "check": held.check,
            "plan": lambda: store.start_run("run-2", NAME, "live", "{}").state,
            "progress": lambda: store.record_progress("run-1", "{}"),
            "another lease": lambda: acquire(store, "other", "run-3", "try-1", 60).owner,
            "read": lambda: len(store.runs(NAME)) > 0,
            "open": lambda: open_store(server.url).run("run-1") is not None,
            "is there": lambda: is_there(server.url),
        }
        with caplog.at_level(logging.WARNING), ThreadPoolExecutor(len(calls)) as pool:
            server.kill()
            under_way = {name: pool.submit(call) for name, call in calls.items()}
            wait_until(lambda: _waits(caplog) or any(one.done() for one in under_way.values()))
            server.start()
            ended = {name: one.result() for name, one in under_way.items()}
    assert ended == {
        "advance": 7,
        "give way": False,
        "check": None,
        "plan": "planned",
        "progress": None,
        "another lease": "run-3",
        "read": True,
        "open": True,
        "is there": True,
    }
    store.close()


def _waits(caplog: pytest.LogCaptureFixture) -> bool:
    return any("waiting for the store, for at most" in record.getMessage() for record in caplog.records)


def test_storing_exactly_what_is_there_is_success(store: WatermarkStore) -> None:
    """As if the answer to the first call had been lost, and the call were repeated."""
    first = store.restore_many([CHANGE])
    assert store.restore_many([CHANGE]) == first
