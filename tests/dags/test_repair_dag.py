"""The task of ``<name>.repair``, as Airflow runs it: approves a real gap and starts a re-created topic again, or says what is missing."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from kafka_replication.orchestration.repair_dags import build_repair_dag
from tests.support.scenario import Scenario, numbered, only
from tests.support.scenes import clusters, scene

__all__ = ["clusters", "scene"]


@pytest.fixture
def asked(scene: Scenario, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    """Airflow's connections and the store's address are those of the scene. It has copied 50 records."""
    for side in ("source", "target"):
        value = json.dumps({"conn_type": "kafka", "extra": scene.connections.kafka(side)})
        monkeypatch.setenv(f"AIRFLOW_CONN_{side.upper()}", value)
    monkeypatch.setenv("KAFKA_REPLICATION_STORE_URL", scene.store_url)
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(50))
    assert scene.run().outcome == "done"
    return scene


def execute(scene: Scenario, user: str | None = "ann", **form: Any) -> Any:
    """Trigger with these fields of the form; the others stay as they are. Returns what goes to the XCom."""
    dag = build_repair_dag(scene.replication())
    context: Any = {
        "params": {**dag.params.dump(), **form},
        "ti": SimpleNamespace(task_id="repair", try_number=1),
        "dag": SimpleNamespace(dag_id=dag.dag_id),
        "dag_run": SimpleNamespace(triggering_user_name=user),
        "run_id": f"manual-{form}",
    }
    task: Any = dag.get_task("repair")
    return task.execute(context)


def test_a_gap_is_approved_by_the_user_who_triggered_it(asked: Scenario) -> None:
    asked.source.produce(asked.topic, numbered(30, 50))
    asked.source.delete_before(asked.topic, 0, 62)
    assert asked.run().outcome == "failed"
    form: dict[str, Any] = {"action": "approve-gap", "topic": asked.topic, "partition": 0, "reason": "an outage"}
    lost: dict[str, Any] = {"from": 50, "until": 62}
    with pytest.raises(AirflowFailException, match=r"exactly \[50, 62\) are lost"):
        execute(asked, **{**form, **lost, "until": 61})
    done = execute(asked, **form, **lost)
    assert (done["new"], done["gap"]["approved_by"], done["gap"]["reason"]) == (True, "ann", "an outage")
    assert execute(asked, **form, **lost)["new"] is False
    assert asked.run().outcome == "done"
    assert not asked.store.leases(asked.name)


def test_a_topic_that_was_re_created_starts_again_if_it_is_named_twice(asked: Scenario) -> None:
    asked.target.delete(asked.topic)
    assert "reset" in only(asked.run()).remedy
    with pytest.raises(AirflowFailException, match="nothing was changed"):
        execute(asked, action="reset", topic=asked.topic, confirm="another")
    assert asked.position().generation == 1
    done = execute(asked, action="reset", topic=asked.topic, confirm=asked.topic)
    assert [(row["generation"], row["start"]) for row in done["partitions"]] == [(2, 0)]
    assert asked.run().outcome == "done"
    asked.assert_copied(0)


FORMS: list[tuple[dict[str, Any], str]] = [
    ({}, "'' is no action"),
    ({"action": "undo"}, "'undo' is no action"),
    ({"action": "reset"}, "nothing was changed"),
    ({"action": "approve-gap", "topic": "t", "from": 0}, "does not say partition, until"),
    ({"action": "approve-gap", "topic": "t", "partition": 0, "from": 5, "until": 4, "reason": "r"}, "no range"),
    ({"action": "approve-gap", "topic": "t", "partition": 0, "from": 0, "until": 4}, "--reason must be one line"),
]


def test_what_the_form_misses_is_said_before_anything_is_done(asked: Scenario) -> None:
    for form, words in FORMS:
        with pytest.raises(AirflowFailException, match=words):
            execute(asked, **form)
    # Somebody has to answer for a gap.
    form = {"action": "approve-gap", "topic": "t", "partition": 0, "from": 0, "until": 4, "reason": "r"}
    with pytest.raises(AirflowFailException, match="does not know who triggered"):
        execute(asked, user=None, **form)
