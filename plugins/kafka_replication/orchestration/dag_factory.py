"""One DAG for each replication file. Building a DAG reads the file and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from airflow.sdk import DAG, CronDataIntervalTimetable, Param

from kafka_replication.config import Replication
from kafka_replication.orchestration import form
from kafka_replication.orchestration.backfill_operators import IntervalPlanOperator
from kafka_replication.orchestration.doc_md import doc_md
from kafka_replication.orchestration.import_errors import good_replications
from kafka_replication.orchestration.operators import PlanOperator
from kafka_replication.orchestration.tasks import add_tasks, default_args
from kafka_replication.planning.backfill_request import LATEST

# Fixed, because Airflow schedules from it. With catchup off Airflow runs none of the intervals between it and now.
START = datetime(2024, 1, 1, tzinfo=UTC)


def load_dags(folder: Path) -> dict[str, DAG]:
    """The DAGs of all good files in a folder, by id. `import_errors` reports the broken files."""
    return {replication.name: build_dag(replication) for replication in good_replications(folder)}


def build_dag(replication: Replication) -> DAG:
    """``plan >> replicate >> report``."""
    if replication.progress == "interval":
        return _build_interval_dag(replication)
    with DAG(
        dag_id=replication.name,
        schedule=replication.schedule,
        start_date=START,
        catchup=False,
        max_active_runs=1,
        description=f"Replicates {replication.source.connection} to {replication.target.connection}",
        doc_md=doc_md(replication),
        tags=list(replication.tags),
        params=_params(replication),
        default_args=default_args(replication),
    ) as dag:
        add_tasks(replication, PlanOperator(task_id="plan", replication=replication))
    return dag


def _build_interval_dag(replication: Replication) -> DAG:
    """``plan >> replicate >> report`` of each data interval since ``start_from``, so that Airflow's own backfill works.

    The timetable is needed because in Airflow 3 a plain cron string gives runs whose data interval is empty.
    """
    assert replication.schedule is not None and isinstance(replication.start_from, datetime)  # the model's rule
    with DAG(
        dag_id=replication.name,
        schedule=CronDataIntervalTimetable(replication.schedule, "UTC"),
        start_date=replication.start_from,
        catchup=True,
        max_active_runs=1,
        description=(
            f"Replicates {replication.source.connection} to {replication.target.connection}, one data interval a run"
        ),
        doc_md=doc_md(replication),
        tags=list(replication.tags),
        default_args=default_args(replication),
    ) as dag:
        add_tasks(replication, IntervalPlanOperator(task_id="plan", replication=replication))
    return dag


def _params(replication: Replication) -> dict[str, Param]:
    """The trigger's form: names, times and switches only, never client settings."""
    return {
        "topics": form.topics(replication),
        "until": Param(
            LATEST,
            type=["null", "string"],
            title="Until",
            description=(
                "Where to stop: latest, or an RFC 3339 time with its zone such as 2030-01-31T06:00:00Z; empty means"
                " latest."
            ),
        ),
        "dry_run": form.dry_run(False),
    }
