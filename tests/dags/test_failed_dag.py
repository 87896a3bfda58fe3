"""The task of ``<name>.failed``, as Airflow runs it: lists, retries and discards real records, and fails where one stays."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from kafka_replication.orchestration import task_run
from kafka_replication.orchestration.repair_dags import build_failed_dag
from tests.dags.test_backfill_dag import replication
from tests.support.failed import assert_each_once, with_failures
from tests.support.scenario import Scenario
from tests.support.scenes import clusters, scene

__all__ = ["clusters", "scene", "with_failures"]
LEFT = [(7, "quarantined"), (8, "quarantined"), (30, "quarantined"), (59, "quarantined")]


@pytest.fixture
def asked(with_failures: Scenario, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    """Airflow's connections and the store's address are those of the scene."""
    for side in ("source", "target"):
        extra = with_failures.connections.kafka(side)
        value = json.dumps({"conn_type": "kafka", "extra": extra})
        monkeypatch.setenv(f"AIRFLOW_CONN_{side.upper()}", value)
    monkeypatch.setenv("KAFKA_REPLICATION_STORE_URL", with_failures.store_url)
    return with_failures


def execute(scene: Scenario, pushed: dict[str, Any], **form: Any) -> None:
    """Trigger with these fields of the form; the others stay as they are. ``pushed`` gets what goes to the XCom."""
    dag = build_failed_dag(scene.replication())
    context: Any = {
        "params": {**dag.params.dump(), **form},
        "ti": SimpleNamespace(task_id="handle", try_number=1, xcom_push=pushed.__setitem__),
        "dag": SimpleNamespace(dag_id=dag.dag_id),
        "dag_run": SimpleNamespace(triggering_user_name=None),
        "run_id": f"manual-{form}",
    }
    task: Any = dag.get_task("handle")
    task.execute(context)


def done(scene: Scenario, **form: Any) -> list[dict[str, Any]]:
    pushed = dict[str, Any]()
    execute(scene, pushed, **form)
    records: list[dict[str, Any]] = pushed["return_value"]["records"]
    return records


def states(records: list[dict[str, Any]]) -> list[tuple[int, str]]:
    return [(record["offset"], record["state"]) for record in records]


def test_records_are_listed_retried_and_discarded(asked: Scenario) -> None:
    scene = asked
    assert states(done(scene)) == states(done(scene, action=None)) == LEFT
    assert done(scene, topic="another") == []
    discarded = done(scene, action="discard", **{"from": 8, "until": 9}, by=" ann ", reason="test data")
    assert states(discarded) == [(8, "discarded")]
    assert (discarded[0]["history"][-1]["by"], discarded[0]["history"][-1]["reason"]) == ("ann", "test data")
    scene.target.set(scene.topic, cleanup_policy="delete")
    retried = done(scene, action="retry", all=True, by="ann")
    assert [(record["offset"], record["done"], record["order_lost"]) for record in retried] == [
        (7, True, True),
        (30, True, True),
        (59, True, False),
    ]
    assert done(scene) == []
    assert states(done(scene, state="any")) == [(7, "retried"), (8, "discarded"), (30, "retried"), (59, "retried")]
    assert_each_once(scene, missing=[8])


def test_the_task_fails_where_a_record_stays_and_says_why_in_the_xcom(asked: Scenario) -> None:
    """The target is compacted still."""
    pushed = dict[str, Any]()
    with pytest.raises(AirflowFailException, match="stay as they were"):
        execute(asked, pushed, action="retry", all=True, by="ann")
    records = pushed["return_value"]["records"]
    assert states(records) == LEFT
    assert all(not record["done"] and "the target still refuses it" in record["why"] for record in records)


def test_a_form_that_does_not_say_enough_decides_nothing(asked: Scenario) -> None:
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"action": "discard", "all": True}, "the field Who is empty"),
        ({"action": "retry", "all": True, "by": "  "}, "the field Who is empty"),
        ({"action": "discard", "by": "ann"}, "needs to know which records"),
        ({"action": "discard", "all": True, "by": "ann\nbob"}, "one line"),
    ]
    for form, words in mistakes:
        with pytest.raises(AirflowFailException) as failed:
            execute(asked, {}, **form)
        error = task_run.error_of(failed.value)
        assert error is not None and (error.id, words in error.what) == ("bad-input", True), error
    assert states(done(asked)) == LEFT


def test_the_form_says_what_a_retry_does_to_the_order() -> None:
    said: str = build_failed_dag(replication()).params.get_param("action").description or ""
    assert "newer records then lie before them" in said
