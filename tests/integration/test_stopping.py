"""Who is asked to end leaves nothing open behind: readers and the next run need not wait for the transaction's time-out."""

from __future__ import annotations

import signal

import pytest

from kafka_replication.kafka import offsets
from kafka_replication.keys import LEDGER_PARTITIONS
from kafka_replication.ledger import POSITIONS
from kafka_replication.offsets import TopicPartition
from tests.checker import high_watermark, read
from tests.integration.scenario import Scenario, numbered, wait_until
from tests.integration.test_kill import copy_process, end_of

MINUTES = 600  # the transaction's time-out, far beyond every wait here
RECORDS = 150_000


def is_stable(scene: Scenario, partition: int = 0) -> bool:
    """Whether no transaction is open on the target partition and in the ledger."""
    wanted = [TopicPartition(scene.topic, partition), *(TopicPartition(POSITIONS, number) for number in range(LEDGER_PARTITIONS))]
    return offsets.last_stable(scene.target.admin, wanted) == offsets.high_watermarks(scene.target.admin, wanted)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_copier_that_is_stopped_aborts_its_transaction(scene: Scenario, number: signal.Signals) -> None:
    """SIGTERM is the operating system's and Airflow's way to ask, SIGHUP that of Spark's Python daemon."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(RECORDS))
    scene.settings |= {"copy": {"chunk_records": RECORDS, "chunk_seconds": 60, "transaction_timeout": MINUTES}}
    process = copy_process(scene, scene.copy_job())
    wait_until(lambda: high_watermark(scene.target.bootstrap, scene.topic, 0) > 0)  # sent, and not committed: it is all one chunk
    process.send_signal(number)
    assert end_of(process) == 128 + number
    wait_until(lambda: is_stable(scene))
    assert read(scene.target.bootstrap, scene.topic, 0) == []
    assert len(read(scene.target.bootstrap, scene.topic, 0, committed=False)) > 0, "nothing was open: the signal came too soon"
    report = scene.run()
    assert report.outcome == "done", report.table()
    scene.assert_copied()
