"""The task of ``<name>.drill``, as Airflow runs it."""

from __future__ import annotations

import json
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException

from kafka_replication.orchestration.airflow import dags
from kafka_replication.orchestration.turning_dags import build_drill_dag
from tests.support.actions import copied_once
from tests.support.scenario import Scenario, numbered
from tests.support.scenes import clusters, scene

__all__ = ["clusters", "scene"]


@pytest.fixture
def copied(scene: Scenario, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    for side in ("source", "target"):
        value = json.dumps({"conn_type": "kafka", "extra": scene.connections.kafka(side)})
        monkeypatch.setenv(f"AIRFLOW_CONN_{side.upper()}", value)
    monkeypatch.setenv("KAFKA_REPLICATION_STORE_URL", scene.store_url)
    copied_once(scene)
    return scene


def execute(dag: DAG, **form: Any) -> dict[str, Any]:
    """Trigger with these fields of the form; what the task pushed, also one that failed: under ``failed`` then is why."""
    task: Any = dag.tasks[0]
    pushed = dict[str, Any]()
    context: Any = {
        "params": {**dag.params.dump(), **form},
        "ti": SimpleNamespace(task_id=task.task_id, try_number=1, xcom_push=pushed.__setitem__),
        "dag": SimpleNamespace(dag_id=dag.dag_id),
        "dag_run": SimpleNamespace(triggering_user_name="ann"),
        "run_id": f"manual-{form}",
    }
    failed = ""
    try:
        task.execute(context)
    except AirflowException as error:
        failed = str(error)
    return {**pushed.get("return_value", {}), "failed": failed}


def test_a_drill_pushes_what_would_be_left(copied: Scenario) -> None:
    copied.source.produce(copied.topic, numbered(7, 50))
    told = execute(build_drill_dag(copied.replication()))
    assert (told["records"], told["failed"]) == (7, "") and told["said"].startswith("if the source died now: 7 records")
    drill = copied.store.last_drill(copied.name)
    assert drill is not None and drill.at == told["at"]


def test_a_drill_that_is_worse_than_asked_fails_and_pushes_it(copied: Scenario) -> None:
    copied.settings["objectives"] = {"lag": 60, "drill_every": 3600}
    copied.source.produce(copied.topic, numbered(7, 50))  # of 2023
    dag = build_drill_dag(copied.replication())
    told, schedule = execute(dag), dag.schedule
    assert told["records"] == 7 and "objectives.lag allows 60 s" in told["failed"]
    assert schedule == timedelta(hours=1)


def test_a_drill_is_there_only_for_directions_that_can_be_sealed(tmp_path: Any) -> None:
    text = "name: orders-dr\nsource: {connection: a}\ntarget: {connection: b}\ntopics: {include: [orders]}\n"
    (tmp_path / "orders-dr.yaml").write_text(text)
    dag = dags(tmp_path)["orders-dr.drill"]
    schedule: Any = dag.schedule
    assert schedule is None and not dag.catchup
    (tmp_path / "orders-dr.yaml").write_text(f"{text}delivery: at_least_once\n")
    assert "orders-dr.drill" not in dags(tmp_path) and "orders-dr.audit" in dags(tmp_path)
