"""The task of ``<name>.audit``, as Airflow runs it: a small amount in its own process, a sample, a large amount on Spark."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from kafka_replication.orchestration.repair_dags import AuditOperator, build_audit_dag
from kafka_replication.runs import audit as auditing
from kafka_replication.verification.auditing import Size
from tests.support.actions import copied_once
from tests.support.jobs import InProcess
from tests.support.scenario import Rec, Scenario
from tests.support.scenes import clusters, scene

__all__ = ["clusters", "scene"]


@pytest.fixture
def copied(scene: Scenario, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    for side in ("source", "target"):
        value = json.dumps({"conn_type": "kafka", "extra": scene.connections.kafka(side)})
        monkeypatch.setenv(f"AIRFLOW_CONN_{side.upper()}", value)
    monkeypatch.setenv("KAFKA_REPLICATION_STORE_URL", scene.store_url)
    scene.settings |= {"copy": {"chunk_records": 10}}
    copied_once(scene)
    return scene


def execute(scene: Scenario, launcher: InProcess, **form: Any) -> dict[str, Any]:
    """Trigger with these fields of the form. Returns the XComs, also of a task that failed, under ``failed`` why."""
    dag = build_audit_dag(scene.replication())
    pushed = dict[str, Any]()
    context: Any = {
        "params": {**dag.params.dump(), **form},
        "ti": SimpleNamespace(task_id="audit", try_number=1, xcom_push=pushed.__setitem__),
        "dag": SimpleNamespace(dag_id=dag.dag_id),
        "run_id": f"manual-{form}",
    }
    task = dag.get_task("audit")
    assert isinstance(task, AuditOperator)
    task.launcher = lambda: launcher  # type: ignore[method-assign]
    try:
        task.execute(context)
    except AirflowFailException as error:
        pushed["failed"] = str(error)
    return pushed


def test_a_small_audit_starts_no_spark_and_fails_if_something_differs(copied: Scenario) -> None:
    spark = InProcess()
    pushed = execute(copied, spark)
    assert pushed["return_value"]["outcome"] == "clean" and "failed" not in pushed
    assert pushed["return_value"]["sample"] is None
    copied.target.produce(copied.topic, [Rec(b"foreign", b"x")])
    pushed = execute(copied, spark)
    assert pushed["return_value"]["outcome"] == "differs" and f"{copied.topic}-0 differs" in pushed["failed"]
    assert not spark.audits


def test_a_sample_is_drawn_by_the_seed_of_the_form(copied: Scenario) -> None:
    drawn = [execute(copied, InProcess(), sample=2, seed=7)["return_value"] for _ in range(2)]
    for document in drawn:
        assert document["sample"] == {"chunks": 2, "seed": 7}
        assert [(row["chunks"], row["by_content"] < row["offsets"]) for row in document["partitions"]] == [(2, True)]


def test_a_large_audit_is_the_launcher_s(copied: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    defaults: Any = auditing.audit.__kwdefaults__
    monkeypatch.setitem(defaults, "least", Size(records=50, bytes=1 << 40))
    spark = InProcess()
    pushed = execute(copied, spark)
    assert pushed["return_value"]["outcome"] == "clean" and len(spark.audits) == 1
