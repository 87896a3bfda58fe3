"""The tasks of ``<name>.drill`` and ``<name>.turn``, as Airflow runs them."""

from __future__ import annotations

import json
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException
from airflow.serialization.serialized_objects import DagSerialization
from confluent_kafka import Consumer

from kafka_replication.orchestration.airflow import dags
from kafka_replication.orchestration.turning_dags import Turn, TurnOperator, build_drill_dag, build_turn_dag
from kafka_replication.runs.reporting import standing
from tests.support.actions import copied_once
from tests.support.checker import read
from tests.support.jobs import InProcess
from tests.support.scenario import Scenario, numbered
from tests.support.scenes import clusters, scene
from tests.support.waiting import wait_until

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


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Spark."""
    monkeypatch.setattr(TurnOperator, "launcher", lambda _: InProcess())


def turn(scene: Scenario, action: str, *, dry_run: bool = False, **form: Any) -> dict[str, Any]:
    dag = build_turn_dag(scene.replication(), scene.folder)
    return execute(dag, action=action, dry_run=dry_run, reason="a test", **form)


@pytest.mark.usefixtures("in_process")
def test_a_failover_its_dry_run_and_its_way_back(copied: Scenario) -> None:
    for action in ("failover", "cutover"):
        told = turn(copied, action, dry_run=True)
        assert not told["applied"] and not told["failed"] and copied.position().sealed is None
    told = turn(copied, "failover", by=" ")
    seal = copied.position().sealed
    assert told["state"] == "sealed" and not told["failed"] and seal
    assert (seal.why, seal.by, seal.reason) == ("failover", "ann", "a test"), "the user whom Airflow knows"
    assert [row.seal for row in standing(copied.bare_run("look"))] == [seal]
    for action in ("failover --undo", "cutover --abort"):
        assert f"{action} has no dry run" in turn(copied, action, dry_run=True)["failed"]
    assert copied.position().sealed == seal
    assert turn(copied, "failover --undo")["state"] == "opened again"
    assert copied.position().sealed is None


@pytest.mark.usefixtures("in_process")
def test_a_cutover_fails_with_the_step_that_is_blocked_and_goes_on_when_triggered_again(copied: Scenario) -> None:
    copied.settings["groups"] = {"include": [f"^{copied.name}"]}
    settings = {"bootstrap.servers": copied.source.bootstrap, "group.id": f"{copied.name}-a", "log_level": 0}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.subscribe([copied.topic])
    wait_until(lambda: consumer.poll(0.1) is not None)
    consumer.commit(asynchronous=False)
    told = turn(copied, "cutover", quiet=0.5, by="bob")
    first, second, *others = (step["state"] for step in told["steps"])
    assert (first, second, {*others}) == ("done", "blocked", {"to do"})
    assert told["failed"].startswith(f"not done: step groups: group {copied.name}-a")
    consumer.close()
    told = turn(copied, "cutover", quiet=0.5, by="bob", audit=-1)
    assert not told["failed"] and {"audit", "sealed"} <= {step["step"] for step in told["steps"]}
    seal = copied.position().sealed
    assert seal and (seal.why, seal.by) == ("cutover", "bob")
    assert "is sealed" in turn(copied, "cutover --abort")["failed"]


@pytest.mark.usefixtures("in_process")
def test_a_failback_finds_the_other_direction_among_the_files(
    copied: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn(copied, "failover")
    copied.target.produce(copied.topic, numbered(5, 900))
    back = {**copied.document(), "name": f"{copied.name}-back"}
    back |= {"source": copied.document()["target"], "target": copied.document()["source"]}
    (copied.folder / "back.yaml").write_text(yaml.safe_dump(back))
    assert "no replication is called 'nobody'" in turn(copied, "failback", back="nobody")["failed"]
    assert "the field Other direction is empty" in turn(copied, "failback")["failed"]
    assert "does not deny producers" in turn(copied, "failback", back=back["name"], deny_producers=True)["failed"]
    told = turn(copied, "failback", dry_run=True, back=back["name"])
    assert [row["lag"] for row in told["partitions"]] == [5] and not told["failed"]
    told = turn(copied, "failback", back=back["name"], quiet=0.5)
    assert not told["failed"] and {step["state"] for step in told["steps"]} == {"done"}
    assert len(read(copied.source.bootstrap, copied.topic, 0)) == 55
    assert copied.position().sealed is None


def test_the_form_of_a_turn(tmp_path: Any) -> None:
    text = "name: orders-dr\nsource: {connection: a}\ntarget: {connection: b}\ntopics: {include: [orders]}\n"
    (tmp_path / "orders-dr.yaml").write_text(text)
    dag = dags(tmp_path)["orders-dr.turn"]
    schedule: Any = dag.schedule
    assert schedule is None and dag.max_active_runs == 1
    assert dag.params["dry_run"] is True and dag.params["action"] is None
    assert dag.params.get_param("action").schema["examples"] == [*Turn]
    DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
    assert "'' is no action" in execute(dag)["failed"]
    (tmp_path / "orders-dr.yaml").write_text(f"{text}partitioning: by_key\n")
    assert "orders-dr.turn" not in dags(tmp_path)
