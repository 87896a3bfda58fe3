"""The task of ``<name>.groups``, as Airflow runs it, and what the page then shows of the groups."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException
from confluent_kafka import Consumer, TopicPartition

from kafka_replication.orchestration.airflow import dags
from kafka_replication.orchestration.repair_dags import GroupsOperator, build_groups_dag
from kafka_replication.web import pages
from kafka_replication.web.actions import Site
from kafka_replication.web.pages import Reader
from tests.support.actions import copied_once
from tests.support.scenario import Scenario
from tests.support.scenes import clusters, scene

__all__ = ["clusters", "scene"]


@pytest.fixture
def copied(scene: Scenario, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    for side in ("source", "target"):
        value = json.dumps({"conn_type": "kafka", "extra": scene.connections.kafka(side)})
        monkeypatch.setenv(f"AIRFLOW_CONN_{side.upper()}", value)
    monkeypatch.setenv("KAFKA_REPLICATION_STORE_URL", scene.store_url)
    copied_once(scene)
    scene.settings |= {"groups": {"include": [f"^{scene.name}"], "interval": 60}}
    for name in ("a", "b"):
        settings = {"bootstrap.servers": scene.source.bootstrap, "group.id": f"{scene.name}-{name}", "log_level": 0}
        consumer = Consumer(settings)
        consumer.commit(offsets=[TopicPartition(scene.topic, 0, 7)], asynchronous=False)
        consumer.close()
    return scene


def execute(scene: Scenario, **form: Any) -> dict[str, Any]:
    """Trigger with these fields of the form; the groups that the task pushed, by name."""
    dag = build_groups_dag(scene.replication())
    pushed = dict[str, Any]()
    context: Any = {
        "params": {**dag.params.dump(), **form},
        "ti": SimpleNamespace(task_id="move", try_number=1, xcom_push=pushed.__setitem__),
        "dag": SimpleNamespace(dag_id=dag.dag_id),
        "run_id": f"manual-{form}",
    }
    task = dag.get_task("move")
    assert isinstance(task, GroupsOperator)
    task.execute(context)
    return {row["group"]: row for row in pushed["return_value"]["groups"]}


def test_a_dry_run_then_one_group_then_all(copied: Scenario) -> None:
    first, second = (f"{copied.name}-{name}" for name in ("a", "b"))
    assert {row["state"] for row in execute(copied, dry_run=True).values()} == {"planned"}
    assert {name: row["state"] for name, row in execute(copied, groups=[second, ""]).items()} == {second: "moved"}
    states = {name: row["state"] for name, row in execute(copied).items()}
    assert states == {first: "moved", second: "in step"}
    reader = Reader(store=copied.store, site=Site("/page", ""), now=datetime.now(UTC))
    page = pages.replication(reader, copied.name)
    assert "Consumer groups" in page
    assert f"{first}<small>classic</small>" in page
    assert "exact in 1 of 1 partitions" in page


def test_a_name_that_the_file_does_not_select_is_refused(copied: Scenario) -> None:
    with pytest.raises(AirflowException, match="does not select"):
        execute(copied, groups=["somebody else"])


def test_it_has_its_interval_and_is_there_only_for_files_that_move_groups(tmp_path: Any, scene: Scenario) -> None:
    text = "name: orders-dr\nsource: {connection: a}\ntarget: {connection: b}\ntopics: {include: [orders]}\n"
    (tmp_path / "orders-dr.yaml").write_text(text)
    assert "orders-dr.groups" not in dags(tmp_path)
    (tmp_path / "orders-dr.yaml").write_text(f"{text}groups: {{include: [billing], interval: 60}}\n")
    dag = dags(tmp_path)["orders-dr.groups"]
    assert dag.schedule == timedelta(seconds=60)
    assert not dag.catchup
