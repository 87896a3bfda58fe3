"""The tasks after the plan, on real clusters and in one process: what `replicate` knows, `report` says."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.sdk.execution_time.context import OutletEventAccessors

from kafka_replication.model.errors import Unreachable
from kafka_replication.orchestration import task_run
from kafka_replication.orchestration.dag_factory import build_dag
from kafka_replication.runtime import deadline
from kafka_replication.spark.jobs import Job, JobEnd
from kafka_replication.spark.launcher import Deliver
from stack.kafka_cluster import KafkaCluster
from tests.support.jobs import InProcess, after_copy
from tests.support.scenario import Scenario, numbered
from tests.support.scenes import clusters, own_source_scene, scene
from tests.support.watermarks import restore

__all__ = ["clusters", "own_source_scene", "scene"]


class Task:
    """Airflow's view of one task: its try, and the XComs of its run."""

    def __init__(self, task_id: str, shared: dict[tuple[str, str], Any]) -> None:
        self.task_id, self.try_number, self._shared = task_id, 1, shared

    def xcom_push(self, key: str, value: Any) -> None:
        self._shared[self.task_id, key] = json.loads(json.dumps(value))

    def xcom_pull(self, task_ids: str, key: str) -> Any:
        return self._shared.get((task_ids, key))


class Run:
    """The tasks of one DAG run, in this process."""

    def __init__(self, scene: Scenario, monkeypatch: pytest.MonkeyPatch, launcher: InProcess) -> None:
        for name in ("source", "target"):
            extra = {"bootstrap.servers": getattr(scene, name).bootstrap}
            monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps({"conn_type": "kafka", "extra": extra}))
        monkeypatch.setenv("KAFKA_REPLICATION_STORE_URL", scene.store_url)
        self._dag = build_dag(scene.replication())
        self.shared = dict[tuple[str, str], Any]()
        replicate: Any = self._dag.get_task("replicate")
        replicate.launcher = lambda: launcher

    def task(self, task_id: str) -> Any:
        return self._dag.get_task(task_id)

    def execute(self, task_id: str) -> None:
        task = self.task(task_id)
        ti, dag = Task(task_id, self.shared), SimpleNamespace(dag_id=self._dag.dag_id)
        params = {"topics": None, "until": None, "dry_run": False}
        task.execute({"ti": ti, "dag": dag, "run_id": "r", "params": params, "outlet_events": OutletEventAccessors()})


def test_the_report_says_why_a_watermark_was_not_moved(scene: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a run of the command line does."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(20))

    def reset() -> None:
        restore(scene.store, scene.key(), 0, None, generation=9, run_id="reset")

    run = Run(scene, monkeypatch, after_copy(reset))
    run.execute("plan")
    with pytest.raises(AirflowException, match="generation 1 is over: reset stored 0"):
        run.execute("replicate")
    with pytest.raises(AirflowFailException):
        run.execute("report")
    [line] = run.shared["report", "return_value"]["ranges"]
    assert "the watermark was not moved" in line["error"] and "it plans with the new generation" in line["error"]


def test_a_source_that_dies_while_ranges_are_copied_is_the_error_of_the_task(
    own_source_scene: Scenario, own_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who alerts needs more than the texts of the ranges."""
    scene = own_source_scene
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(20))
    scene.settings |= {"copy": {"stall_timeout": 1}, "timeouts": {"request": 2}}
    monkeypatch.setattr(deadline, "ATTEMPTS", 1)

    class Dying(InProcess):
        def submit(self, job: Job, deliver: Deliver) -> JobEnd:
            own_cluster.broker(0).kill()
            return super().submit(job, deliver)

    run = Run(scene, monkeypatch, Dying())
    run.execute("plan")
    try:
        with pytest.raises(AirflowException, match="ranges are not done") as failed:
            run.execute("replicate")
    finally:
        own_cluster.start()
    error = task_run.error_of(failed.value)
    assert isinstance(error, Unreachable) and f"source {scene.source.bootstrap}" in error.what
    assert not isinstance(failed.value, AirflowFailException)
