"""A target that loses the end of its log while Airflow copies: the task is tried again, and no green run hides what is gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_replication.model.offsets import TopicPartition
from kafka_replication.runtime.failpoints import VARIABLE, at_gate
from stack.airflow_standalone import AirflowStandalone
from stack.kafka_cluster import KafkaCluster
from tests.e2e.standalone import standalone
from tests.support.checker import check
from tests.support.clusters import Brokers
from tests.support.damage import lose_from
from tests.support.scenario import Cluster, numbered
from tests.support.waiting import wait_until

NAME = "af-lost-end"
RECORDS, CHUNK = 400, 100
MARKER = 2 * CHUNK + 1  # offset of the second chunk's: without it nobody sees that chunk
RUNS = 5
FILE = {
    "name": NAME,
    "topics": {"include": [NAME]},
    "copy": {"chunk_records": CHUNK, "engine": "record", "transaction_timeout": 600},
    "retries": {"attempts": 2},
}


@pytest.fixture
def airflow(
    tmp_path: Path, gate: Path, source_cluster: Brokers, own_cluster: KafkaCluster
) -> Iterator[AirflowStandalone]:
    target = Brokers(own_cluster.bootstrap)
    with standalone(tmp_path, source_cluster, target, [FILE], {VARIABLE: f"P3:2={gate}"}) as started:
        yield started


@pytest.mark.slow
def test_a_task_that_is_tried_again_hides_nothing(
    airflow: AirflowStandalone, gate: Path, source_cluster: Brokers, own_cluster: KafkaCluster
) -> None:
    source, target, broker = Cluster(source_cluster.bootstrap), Cluster(own_cluster.bootstrap), own_cluster.brokers[0]
    source.create(NAME)
    source.produce(NAME, numbered(RECORDS))

    def is_copied() -> bool:
        return check(source.bootstrap, target.bootstrap, NAME, NAME, 0).clean

    with airflow.api() as api:
        api.wait_for_dag(NAME)
        api.unpause(NAME)
        run_id = api.trigger(NAME)
        wait_until(at_gate(gate).exists)
        wait_until(lambda: target.is_settled([TopicPartition(NAME, 0)]))
        broker.kill()
        assert lose_from(broker.data, NAME, 0, MARKER) == MARKER
        broker.start()
        gate.unlink()
        assert api.wait_for_run(NAME, run_id) == "failed" or is_copied()
        for _ in range(RUNS):
            run_id = api.trigger(NAME)
            if api.wait_for_run(NAME, run_id) == "success":
                assert is_copied()
                report: Any = api.xcom(NAME, run_id, "report")
                if report["outcome"] == "nothing_to_do":
                    return
        pytest.fail(f"{RUNS} runs after it there is still something to do")
