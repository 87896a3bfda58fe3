"""Whoever gives up the work on a range ends its transaction: its entries would hide the ledger from everybody."""

from __future__ import annotations

import threading
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import pytest

from kafka_replication.kafka.transactions import TransactionalProducer
from kafka_replication.ledger.entries import Position
from kafka_replication.model.offsets import PartitionKey
from kafka_replication.runs import steps
from kafka_replication.runtime import failpoints
from kafka_replication.spark import small_ranges
from kafka_replication.spark.worker import WorkerJob
from tests.support.scenario import Scenario, numbered
from tests.support.waiting import SAFETY, wait_until

MINUTES = {"transaction_timeout": 120}  # not its end, but who gives it up


def test_a_thread_that_a_worker_leaves_behind_leaves_no_open_transaction(
    scene: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.settings["copy"] = MINUTES
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(10))
    job, gate = scene.copy_job(), tmp_path / "gate"
    gate.touch()
    failpoints.forget()
    monkeypatch.setenv(failpoints.VARIABLE, f"P2={gate}")  # the commit halts
    halted = failpoints.at_gate(gate)

    def wait_until_it_halts(*arguments: Any) -> tuple[set[Any], set[Any]]:
        wait_until(halted.exists)
        return wait(*arguments)

    monkeypatch.setattr(small_ranges, "wait", wait_until_it_halts)
    try:
        assert WorkerJob(job)._together.work(job.tasks, quiet=0.01, to_end=0.01) == []
        assert scene.is_settled()
    finally:
        gate.unlink()
    assert scene.run().outcome == "done"
    scene.assert_copied()


def left_open(scene: Scenario, key: PartitionKey, position: Position) -> TransactionalProducer:
    """As a dead run leaves it: an entry of this partition in an open transaction."""
    run = scene.bare_run("dead")
    settings = run.clusters.target_connection
    producer = TransactionalProducer(key.transactional_id, str(key), settings, run.replication.copying, run.deadline)
    producer.fence()
    producer.begin()
    run.clusters.ledger.write(producer, key, position)
    producer.flush()
    return producer


def test_what_a_dead_run_left_open_is_ended_side_by_side(scene: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.settings["copy"] = MINUTES
    scene.source.create(scene.topic, 4)
    for partition in range(4):
        scene.source.produce(scene.topic, numbered(10), partition)
    scene.copy_job()  # opens them
    dead = [left_open(scene, *one) for one in scene.bare_run().view().positions.items()]
    fence, meet = TransactionalProducer.fence, threading.Barrier(2)

    def together(producer: TransactionalProducer) -> None:
        meet.wait(SAFETY)  # each needs another one at the same time
        fence(producer)

    try:
        with monkeypatch.context() as patched:
            patched.setattr(TransactionalProducer, "fence", together)
            steps.fence_stale_producers(scene.bare_run())
        assert not scene.bare_run().clusters.ledger.undecided()
    finally:
        for producer in dead:
            producer.close()
