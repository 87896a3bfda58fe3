"""A copying task that is stopped in real Airflow: Spark ends with it, no transaction stays open, and clearing it heals."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from kafka_replication.model.offsets import TopicPartition
from kafka_replication.runtime.failpoints import VARIABLE
from kafka_replication.spark.local import DAEMON
from stack.airflow_standalone import AirflowStandalone
from tests.e2e.standalone import standalone
from tests.support.checker import check
from tests.support.clusters import Brokers
from tests.support.processes import command
from tests.support.scenario import Cluster, numbered
from tests.support.waiting import wait_until

NAME = "af-kill"
PARTITIONS, RECORDS = 2, 2_000
# The time-out is far beyond every wait here.
FILE = {
    "name": NAME,
    "topics": {"include": [NAME]},
    "copy": {"chunk_records": 100, "transaction_timeout": 600},
    "retries": {"attempts": 0},
}


@pytest.fixture
def airflow(
    tmp_path: Path, gate: Path, source_cluster: Brokers, target_cluster: Brokers
) -> Iterator[AirflowStandalone]:
    with standalone(tmp_path, source_cluster, target_cluster, [FILE], {VARIABLE: f"P1:3={gate}"}) as started:
        yield started


class Below:
    """Everything that a process started, directly or not, even what has lost its parent since."""

    def __init__(self, root: int) -> None:
        self.root, self.seen = psutil.Process(root), dict[int, psutil.Process]()

    def spark(self) -> list[psutil.Process]:
        """The living processes of Spark: spark-submit's JVM, the driver, the Python daemon and its workers."""
        for each in [self.root, *self.seen.values()]:
            with contextlib.suppress(psutil.NoSuchProcess):
                for child in each.children(recursive=True):
                    if any(part in command(child) for part in ("pyspark", DAEMON, "replicate_ranges")):
                        self.seen.setdefault(child.pid, child)
        return [each for each in self.seen.values() if command(each)]


@pytest.mark.slow
def test_a_copy_that_is_marked_failed_ends_with_its_spark_and_is_healed_by_clearing(
    airflow: AirflowStandalone, gate: Path, source_cluster: Brokers, target_cluster: Brokers
) -> None:
    source, target = Cluster(source_cluster.bootstrap), Cluster(target_cluster.bootstrap)
    source.create(NAME, PARTITIONS)
    for partition in range(PARTITIONS):
        source.produce(NAME, numbered(RECORDS), partition)
    assert airflow.process is not None
    below = Below(airflow.process.pid)

    def copied() -> int:
        below.spark()
        return target.size(NAME)

    with airflow.api() as api:
        api.wait_for_dag(NAME)
        api.unpause(NAME)
        run_id = api.trigger(NAME)
        wait_until(lambda: copied() > 200)
        assert any(DAEMON in command(each) for each in below.spark())
        api.set_task_state(NAME, run_id, "replicate", "failed")
        wait_until(lambda: not below.spark())
        assert copied() < PARTITIONS * RECORDS
        wait_until(lambda: target.is_settled([TopicPartition(NAME, partition) for partition in range(PARTITIONS)]))
        assert api.wait_for_run(NAME, run_id) == "failed"
        states = {each["task_id"]: each["state"] for each in api.task_instances(NAME, run_id)}
        assert states == {
            "plan": "success",
            "replicate": "failed",
            "report": "failed",
        }
        gate.unlink()
        api.clear(NAME, run_id, "replicate")
        assert api.wait_for_run(NAME, run_id) == "success"
        report: Any = api.xcom(NAME, run_id, "report")
    assert report["outcome"] == "done"
    assert [each["watermark"] for each in report["ranges"]] == [RECORDS] * PARTITIONS
    for partition in range(PARTITIONS):
        assert check(source.bootstrap, target.bootstrap, NAME, NAME, partition).clean
