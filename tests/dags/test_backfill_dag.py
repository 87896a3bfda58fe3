"""The backfill DAG's form, and the DAG of a replication that copies data intervals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, CronDataIntervalTimetable
from airflow.sdk.exceptions import AirflowFailException
from airflow.serialization.serialized_objects import DagSerialization

from kafka_replication.config import Replication
from kafka_replication.orchestration import task_run
from kafka_replication.orchestration.dag_factory import build_backfill_dag, build_dag
from kafka_replication.runs import backfill
from tests.support.backfill_requests import HOSTILE


def replication(**settings: Any) -> Replication:
    return Replication.model_validate(
        {
            "name": "orders-dr",
            "source": {"connection": "here"},
            "target": {"connection": "there"},
            "topics": {"include": ["orders", "^audit[.]"], "exclude": ["audit.scratch"]},
            **settings,
        }
    )


def plan_task(dag: DAG) -> Any:
    return dag.get_task("plan")


INTERVAL = {"progress": "interval", "schedule": "0 6 * * *", "start_from": "2024-01-31T06:00:00Z"}


@pytest.fixture
def dag() -> DAG:
    return build_backfill_dag(replication(tags=["dr"]))


def test_it_is_never_scheduled_and_runs_one_at_a_time(dag: DAG) -> None:
    assert (dag.dag_id, dag.catchup, dag.max_active_runs, dag.tags) == (
        "orders-dr.backfill",
        False,
        1,
        {"dr", "backfill"},
    )
    assert str(dag.schedule) == "None"
    assert {task.task_id: (sorted(task.upstream_task_ids), task.trigger_rule.value) for task in dag.tasks} == {
        "plan": ([], "all_success"),
        "replicate": (["plan"], "all_success"),
        "report": (["plan", "replicate"], "all_done_min_one_success"),
    }
    DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
    assert all(not task.template_fields for task in dag.tasks), "a form's value is never rendered as a template"


@pytest.mark.parametrize(("changes", "words"), HOSTILE)
def test_the_task_reads_the_form_again_before_it_touches_anything(
    dag: DAG, changes: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def touched(*_: object) -> None:
        raise AssertionError("something was started")

    monkeypatch.setattr(task_run, "opened", touched)
    monkeypatch.setattr(task_run, "working", touched)
    form = {"topics": ["orders"], "partitions": [], "from": "10", "until": "20", "target_topic": None, "dry_run": False}
    params = form | {name.removesuffix("_"): value for name, value in changes.items()}
    with pytest.raises(AirflowFailException) as failed:
        plan_task(dag).execute({"params": params})
    assert words in str(failed.value)


# --- data intervals ----------------------------------------------------------------------------------------------------------------


def test_an_interval_replication_has_intervals_since_its_start_and_catches_up() -> None:
    dag = build_dag(replication(**INTERVAL))
    assert isinstance(dag.timetable, CronDataIntervalTimetable)
    assert (dag.dag_id, dag.catchup, dag.max_active_runs, dag.start_date) == (
        "orders-dr",
        True,
        1,
        datetime(2024, 1, 31, 6, tzinfo=UTC),
    )
    assert [task.task_id for task in dag.tasks] == ["plan", "replicate", "report"]
    DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({**INTERVAL, "schedule": None}, "interval needs a schedule that makes intervals"),
        ({**INTERVAL, "schedule": "@continuous"}, "interval needs a schedule that makes intervals"),
        ({**INTERVAL, "start_from": "earliest"}, "interval needs a time as start_from"),
    ],
)
def test_intervals_need_a_schedule_and_a_beginning(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        replication(**settings)


def test_a_run_without_a_data_interval_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_task(build_dag(replication(**INTERVAL)))
    moment = datetime(2024, 1, 31, 6, tzinfo=UTC)
    for start, end in ((None, None), (moment, moment)):
        run = SimpleNamespace(data_interval_start=start, data_interval_end=end)
        with pytest.raises(AirflowFailException, match="replication orders-dr"):
            plan.execute({"dag_run": run})


def test_the_plan_is_made_for_the_runs_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def stop(_: Any, start: datetime, end: datetime) -> None:
        asked.append((start, end))
        raise KeyboardInterrupt

    monkeypatch.setattr(backfill, "prepare_interval", stop)
    monkeypatch.setattr(task_run, "working", lambda *_, **__: Nothing())
    start = datetime(2024, 1, 31, 6, tzinfo=UTC)
    run = SimpleNamespace(data_interval_start=start, data_interval_end=start + timedelta(days=1))
    with pytest.raises(KeyboardInterrupt):
        plan_task(build_dag(replication(**INTERVAL))).execute({"dag_run": run})
    assert asked == [(start, start + timedelta(days=1))]


class Nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...
