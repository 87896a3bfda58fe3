"""Who is asked to end leaves nothing open behind: readers and the next run need not wait for the transaction's time-out."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace

import pytest

from kafka_replication.model.offsets import OffsetRange
from tests.support.checker import high_watermark, read
from tests.support.children import copy_process, end_of
from tests.support.scenario import Scenario, numbered
from tests.support.waiting import wait_until

MINUTES = 600  # the transaction's time-out, far beyond every wait here
RECORDS = 500


@pytest.fixture
def nohup() -> Iterator[None]:
    """As if the tests were started with nohup; processes inherit it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.usefixtures("nohup")
def test_a_copier_that_is_stopped_aborts_its_transaction(scene: Scenario, number: signal.Signals) -> None:
    """SIGTERM is the operating system's and Airflow's way to ask, SIGHUP that of Spark's Python daemon."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(RECORDS))
    scene.settings |= {
        "copy": {
            "chunk_records": 2 * RECORDS,
            "stall_timeout": 200,
            "transaction_timeout": MINUTES,
        }
    }
    job = scene.copy_job()
    # The range ends beyond the source's end, so that its chunk stays open: the copier waits for more.
    longer = [
        replace(task, copy=replace(task.copy, range=OffsetRange(0, RECORDS + 1))) for task in job.tasks if task.copy
    ]
    job = replace(job, tasks=longer)
    process = copy_process(scene, job)
    wait_until(lambda: high_watermark(scene.target.bootstrap, scene.topic, 0) > 0)
    process.send_signal(number)
    assert end_of(process) == 128 + number
    wait_until(scene.is_settled)
    assert read(scene.target.bootstrap, scene.topic, 0) == []
    assert len(read(scene.target.bootstrap, scene.topic, 0, committed=False)) > 0
    report = scene.run()
    assert report.outcome == "done", report.table()
    scene.assert_copied()
