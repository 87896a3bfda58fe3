"""One DAG for each replication file, also for one with mistakes. Building a DAG reads only the file.

The DAG ``<name>.backfill`` of each replication. A person triggers it and names the range in its form.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, CronDataIntervalTimetable, Param
from airflow.sdk.definitions.param import ParamsDict

from kafka_replication.config import Replication
from kafka_replication.config.names import BACKFILL_SUFFIX
from kafka_replication.model.errors import ConfigError
from kafka_replication.orchestration import forms
from kafka_replication.orchestration.forms import backfill_md, doc_md
from kafka_replication.orchestration.operators import BackfillPlanOperator, IntervalPlanOperator, PlanOperator
from kafka_replication.orchestration.tasks import add_broken_tasks, add_tasks, default_args
from kafka_replication.planning.backfill_request import LATEST

# Fixed, because Airflow schedules from it. With catchup off Airflow runs none of the intervals between it and now.
START = datetime(2024, 1, 1, tzinfo=UTC)
Params = Mapping[str, Param]


def build_dag(replication: Replication) -> DAG:
    """``plan >> replicate >> report``."""
    with _dag(replication) as dag:
        operator = IntervalPlanOperator if replication.progress == "interval" else PlanOperator
        add_tasks(replication, operator(task_id="plan", replication=replication))
    return dag


def build_broken_dag(rest: Replication, error: ConfigError) -> DAG:
    """The DAG of a file with mistakes, as far as it can be read: the same id, schedule and tasks. The tasks fail.

    So its schedule, history and alerts go on. If the DAG were missing, Airflow would neither run nor list it.
    """
    with _dag(rest) as dag:
        add_broken_tasks(rest, error)
    dag.params = ParamsDict()
    dag.doc_md = f"**The file of this replication has a mistake.**\n\n```\n{error.what}\n```\n\nRemedy: {error.remedy}"
    return dag


def _dag(replication: Replication) -> DAG:
    """The DAG without its tasks. With ``progress: interval`` it has one data interval a run since ``start_from``, so
    that Airflow's own backfill works.

    The timetable is needed because in Airflow 3 a plain cron string gives runs whose data interval is empty.
    """
    described = f"Replicates {replication.source.connection} to {replication.target.connection}"
    more: dict[str, Any] = {
        "schedule": replication.schedule,
        "start_date": START,
        "catchup": False,
        "description": described,
        "params": {
            "topics": forms.topics(replication),
            "until": Param(
                LATEST,
                type=["null", "string"],
                title="Until",
                description=(
                    "Where to stop: latest, or an RFC 3339 time with its zone such as 2030-01-31T06:00:00Z; empty means"
                    " latest."
                ),
            ),
            "dry_run": forms.dry_run(False),
        },
    }
    if replication.progress == "interval":
        assert replication.schedule is not None  # the model's rule
        more = {
            "schedule": CronDataIntervalTimetable(replication.schedule, "UTC"),
            "start_date": replication.start_from,
            "catchup": True,
            "description": f"{described}, one data interval a run",
        }
    return DAG(
        dag_id=replication.name,
        max_active_runs=1,
        doc_md=doc_md(replication),
        tags=list(replication.tags),
        default_args=default_args(replication),
        **more,
    )


def by_hand(replication: Replication, suffix: str, description: str, doc: str, params: Params, **more: Any) -> DAG:
    """A DAG beside that of the replication, which only a person triggers. Its tasks are not tried again unless ``more``
    says so. The form has names, numbers, times and switches only, never client settings.
    """
    usual = {"start_date": START, "default_args": {"owner": replication.owner, "retries": 0}}
    return DAG(
        dag_id=f"{replication.name}{suffix}",
        schedule=None,
        catchup=False,
        description=description,
        doc_md=doc,
        tags=[*replication.tags, suffix.removeprefix(".")],
        params=params,
        **{**usual, **more},
    )


def build_backfill_dag(replication: Replication) -> DAG:
    """``plan >> replicate >> report``, never scheduled. One at a time, beside live runs with other target topics."""
    # `kafka_replication.planning.backfill_request` reads the values of the form.
    params = {
        "topics": forms.topics(replication),
        "partitions": Param(
            None, title="Partitions", description="Only these partitions, such as 0, 3; empty means all."
        ),
        "from": Param(
            None, title="From", description=f"{forms.POINT}; empty means the first record that the source has."
        ),
        "until": Param(
            None,
            title="Until",
            description=f"{forms.POINT}; the range ends just before it; empty means the present end.",
        ),
        "target_topic": forms.text_field(
            "Target topic",
            "Copy to this topic instead of the replication's own, in the source's order; name one source topic only."
            " Empty means the replication's own.",
        ),
        "dry_run": forms.dry_run(True),
    }
    with by_hand(
        replication,
        BACKFILL_SUFFIX,
        f"Copies a range of {replication.name} that the trigger's form names",
        backfill_md(replication),
        params,
        max_active_runs=1,
        start_date=None,
        default_args=default_args(replication),
    ) as dag:
        add_tasks(replication, BackfillPlanOperator(task_id="plan", replication=replication))
    return dag
