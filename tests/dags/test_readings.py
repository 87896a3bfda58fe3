"""How often the tasks of one DAG run read the ledger, plan, and decode the stored plan."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.execution_time.context import OutletEventAccessors

from kafka_replication.orchestration.dag_factory import build_dag
from kafka_replication.orchestration.operators import ReplicateOperator
from tests.support.jobs import InProcess
from tests.support.readings import Readings, readings
from tests.support.scenario import Scenario, numbered
from tests.support.scenes import clusters, scene

__all__ = ["clusters", "readings", "scene"]


def test_the_tasks_of_a_dag_run(scene: Scenario, readings: Readings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_REPLICATION_STORE_URL", scene.store_url)
    for name, cluster in (("SOURCE", scene.source), ("TARGET", scene.target)):
        connection = {"conn_type": "kafka", "extra": {"bootstrap.servers": cluster.bootstrap}}
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(connection))
    monkeypatch.setattr(ReplicateOperator, "launcher", lambda self: InProcess())
    scene.source.create(scene.topic)
    dag = build_dag(scene.replication())

    def run(run_id: str) -> dict[str, dict[str, int]]:
        found = dict[str, dict[str, int]]()
        for name in ("plan", "replicate", "report"):
            readings.clear()
            task: Any = dag.get_task(name)
            ti = SimpleNamespace(task_id=name, try_number=1, xcom_push=lambda *_: None, xcom_pull=lambda **_: [])
            params = {"topics": None, "until": None, "dry_run": False}
            events = OutletEventAccessors()
            task.execute({"params": params, "ti": ti, "dag": dag, "run_id": run_id, "outlet_events": events})
            found[name] = dict(readings)
        return found

    scene.source.produce(scene.topic, numbered(20))
    assert run("opens") == {
        "plan": {"snapshot": 2, "view": 2, "plan": 2, "receipts": 1},
        "replicate": {"view": 3, "verified": 1, "decoded": 1},
        "report": {"view": 1, "receipts": 1, "decoded": 1},
    }
    scene.source.produce(scene.topic, numbered(20, 20))
    assert run("copies") == {
        "plan": {"snapshot": 1, "view": 1, "plan": 1, "receipts": 1},
        "replicate": {"view": 3, "verified": 1, "decoded": 1},
        "report": {"view": 1, "receipts": 1, "decoded": 1},
    }
    assert run("idle") == {
        "plan": {"snapshot": 1, "view": 1, "plan": 1},
        "replicate": {"view": 1, "decoded": 1},
        "report": {"view": 1, "receipts": 1, "decoded": 1},
    }
