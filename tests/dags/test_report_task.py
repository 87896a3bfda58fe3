"""The tasks after the plan, on real clusters and in one process: what `replicate` knows, `report` says."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from airflow.sdk.execution_time.context import OutletEventAccessors

from kafka_replication.model.errors import Unreachable
from kafka_replication.orchestration import task_run
from kafka_replication.orchestration.dag_factory import build_dag
from kafka_replication.runs import failover, sealing
from kafka_replication.runs.sealing import Asked
from kafka_replication.runtime import deadline
from kafka_replication.spark.jobs import Job, JobEnd
from kafka_replication.spark.launcher import Deliver
from stack.kafka_cluster import KafkaCluster
from stack.ports import LOOPBACK, free_ports
from tests.support.actions import copied_once
from tests.support.jobs import InProcess, after_copy
from tests.support.scenario import Cluster, Scenario, numbered
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

    def __init__(
        self, scene: Scenario, monkeypatch: pytest.MonkeyPatch, launcher: InProcess, run_type: str = "manual"
    ) -> None:
        self._run = SimpleNamespace(run_type=run_type)
        self._run_id = f"{run_type}-{uuid4()}"
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
        context = {"ti": ti, "dag": dag, "dag_run": self._run, "run_id": self._run_id, "params": params}
        task.execute({**context, "outlet_events": OutletEventAccessors()})


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


def report_of(scene: Scenario, monkeypatch: pytest.MonkeyPatch, run_type: str) -> Exception:
    """The exception with which the report of a run of this type ends."""
    run = Run(scene, monkeypatch, InProcess(), run_type)
    run.execute("plan")
    run.execute("replicate")
    with pytest.raises(AirflowException) as ended:
        run.execute("report")
    assert run.shared["report", "return_value"]["outcome"] == "failed"
    return ended.value


def test_only_a_scheduled_run_that_is_sealed_as_a_whole_is_skipped(
    scene: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied_once(scene, partitions=2)
    failover.failover(scene.bare_run("over"), Asked(by="ann", reason="on fire"), InProcess())
    scene.source.produce(scene.topic, numbered(5, 50))
    before = scene.target.size(scene.topic)
    skipped = report_of(scene, monkeypatch, "scheduled")
    assert (
        isinstance(skipped, AirflowSkipException) and "all 2 partitions" in str(skipped) and "on fire" in str(skipped)
    )
    by_hand = report_of(scene, monkeypatch, "manual")
    assert isinstance(by_hand, AirflowFailException) and "on fire" in str(by_hand)
    assert scene.target.size(scene.topic) == before

    was, scene.source = scene.source, Cluster(f"{LOOPBACK}:{free_ports(1)[0]}")
    scene.settings["timeouts"] = {"request": 2}
    assert isinstance(report_of(scene, monkeypatch, "scheduled"), AirflowSkipException), "the source does not answer"
    scene.source = was

    sealing.change(scene.bare_run(), scene.key(1), lambda at: (replace(at, sealed=None),) if at else ())
    assert isinstance(report_of(scene, monkeypatch, "scheduled"), AirflowFailException), "a part is sealed"
