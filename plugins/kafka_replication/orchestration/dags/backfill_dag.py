"""The DAG ``<name>.backfill`` of each replication. A person triggers it and names the range in its form."""

from __future__ import annotations

from airflow.sdk import DAG, Param

from kafka_replication.config import Replication
from kafka_replication.orchestration.dags.tasks import add_tasks, default_args
from kafka_replication.orchestration.operators.backfill_operators import BackfillPlanOperator
from kafka_replication.orchestration.pages import form
from kafka_replication.orchestration.pages.doc_md import backfill_md

SUFFIX = ".backfill"


def build_backfill_dag(replication: Replication) -> DAG:
    """``plan >> replicate >> report``, never scheduled. One at a time, beside live runs with other target topics."""
    with DAG(
        dag_id=f"{replication.name}{SUFFIX}",
        schedule=None,
        catchup=False,
        max_active_runs=1,
        description=f"Copies a range of {replication.name} that the trigger's form names",
        doc_md=backfill_md(replication),
        tags=[*replication.tags, "backfill"],
        params=_params(replication),
        default_args=default_args(replication),
    ) as dag:
        add_tasks(replication, BackfillPlanOperator(task_id="plan", replication=replication))
    return dag


def _params(replication: Replication) -> dict[str, Param]:
    """The form. `kafka_replication.planning.backfill.backfill_request` reads its values."""
    return {
        "topics": form.topics(replication),
        "partitions": Param(
            None, title="Partitions", description="Only these partitions, such as 0, 3; empty means all."
        ),
        "from": Param(
            None, title="From", description=f"{form.POINT}; empty means the first record that the source has."
        ),
        "until": Param(
            None,
            title="Until",
            description=f"{form.POINT}; the range ends just before it; empty means the present end.",
        ),
        "target_topic": form.text_field(
            "Target topic",
            "Copy to this topic instead of the replication's own, in the source's order; name one source topic only."
            " Empty means the replication's own.",
        ),
        "dry_run": form.dry_run(True),
    }
