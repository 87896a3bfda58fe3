"""One replication's DAG: its tasks, form and page."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import DagSerialization

from kafka_replication.config import Replication
from kafka_replication.orchestration.dag_factory import build_dag
from kafka_replication.orchestration.repair_dags import build_audit_dag


def replication(**settings: Any) -> Replication:
    return Replication.model_validate(
        {
            "name": "orders-dr",
            "source": {"connection": "here"},
            "target": {"connection": "there"},
            "topics": {"include": ["orders", "^audit\\.(a|b)$"], "exclude": ["audit.scratch"]},
            **settings,
        }
    )


@pytest.fixture
def dag() -> DAG:
    return build_dag(replication())


def test_the_steps_follow_each_other_and_each_needs_a_plan(dag: DAG) -> None:
    assert {task.task_id: sorted(task.upstream_task_ids) for task in dag.tasks} == {
        "plan": [],
        "replicate": ["plan"],
        "report": ["plan", "replicate"],
    }


def test_a_failed_replication_is_reported_but_nothing_runs_without_a_plan(dag: DAG) -> None:
    rules = {task.task_id: task.trigger_rule.value for task in dag.tasks}
    assert rules["plan"] == rules["replicate"] == "all_success"
    assert rules["report"] == "all_done_min_one_success"


def test_the_file_decides_schedule_tags_and_retries() -> None:
    dag = build_dag(replication(schedule="*/15 * * * *", tags=["dr"], retries={"attempts": 7}))
    assert str(dag.schedule) == "*/15 * * * *"
    assert (dag.dag_id, dag.tags) == ("orders-dr", {"dr"})
    assert (dag.catchup, dag.max_active_runs) == (False, 1)
    for task in dag.tasks:
        assert (task.retries, task.retry_delay, task.max_retry_delay) == (
            7,
            timedelta(seconds=30),
            timedelta(seconds=600),
        )


def test_the_page_says_what_is_replicated_and_what_to_clear(dag: DAG) -> None:
    page = build_dag(replication(description="Ask *ops* first.")).doc_md or ""
    assert page.startswith("Ask *ops* first.\n")
    for text in (
        "`here`",
        "`there`",
        "`orders`",
        "`audit.scratch`",
        "`^audit\\.(a&#124;b)$`",
        "`replicate` and downstream",
        "does not turn a failed one here green",
    ):
        assert text in page


def test_airflow_stores_nothing_of_a_task_but_its_place(dag: DAG) -> None:
    DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
    assert all(not task.template_fields for task in dag.tasks)


# --- the audit's DAG ----------------------------------------------------------------------------------------------------------


def test_an_audit_is_one_task_that_nothing_starts_by_itself() -> None:
    dag = build_audit_dag(replication())
    assert (dag.dag_id, str(dag.schedule), [task.task_id for task in dag.tasks]) == (
        "orders-dr.audit",
        "None",
        ["audit"],
    )
    DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
