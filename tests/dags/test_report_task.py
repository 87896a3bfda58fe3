"""The tasks after the plan, on real clusters and in one process: what `replicate` knows, `report` says."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from kafka_replication.orchestration.dag_factory import build_dag
from tests.support.jobs import after_copy
from tests.support.scenario import Scenario, numbered
from tests.support.scenes import clusters, scene
from tests.support.watermarks import restore

__all__ = ["clusters", "scene"]


class Task:
    """Airflow's view of one task: its try, and the XComs of its run."""

    def __init__(self, task_id: str, shared: dict[tuple[str, str], Any]) -> None:
        self.task_id, self.try_number, self._shared = task_id, 1, shared

    def xcom_push(self, key: str, value: Any) -> None:
        self._shared[self.task_id, key] = json.loads(json.dumps(value))

    def xcom_pull(self, task_ids: str, key: str) -> Any:
        return self._shared.get((task_ids, key))


def test_the_report_says_why_a_watermark_was_not_moved(scene: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a run of the command line does."""
    for name in ("source", "target"):
        extra = {"bootstrap.servers": getattr(scene, name).bootstrap}
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps({"conn_type": "kafka", "extra": extra}))
    monkeypatch.setenv("KAFKA_REPLICATION_STORE_URL", scene.store_url)
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(20))
    dag = build_dag(scene.replication())
    shared = dict[tuple[str, str], Any]()

    def execute(task_id: str) -> None:
        task: Any = dag.get_task(task_id)
        params = {"topics": None, "until": None, "dry_run": False}
        task.execute(
            {"ti": Task(task_id, shared), "dag": SimpleNamespace(dag_id=dag.dag_id), "run_id": "r", "params": params}
        )

    def reset() -> None:
        restore(scene.store, scene.key(), 0, None, generation=9, run_id="reset")

    replicate: Any = dag.get_task("replicate")
    replicate.launcher = lambda: after_copy(reset)
    execute("plan")
    with pytest.raises(AirflowException, match="generation 1 is over: reset stored 0"):
        execute("replicate")
    with pytest.raises(AirflowFailException):
        execute("report")
    [line] = shared["report", "return_value"]["ranges"]
    assert "the watermark was not moved" in line["error"] and "it plans with the new generation" in line["error"]
