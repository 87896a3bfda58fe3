"""The DAG ``<name>.backfill`` of each replication. A person triggers it and names the range in its form."""

from __future__ import annotations

from airflow.sdk import DAG, Param

from kafka_replication.config import Replication
from kafka_replication.config.values.names import BACKFILL_SUFFIX
from kafka_replication.orchestration.dags.dag_factory import by_hand
from kafka_replication.orchestration.dags.tasks import add_tasks, default_args
from kafka_replication.orchestration.operators.backfill_operators import BackfillPlanOperator
from kafka_replication.orchestration.pages import form
from kafka_replication.orchestration.pages.doc_md import backfill_md


def build_backfill_dag(replication: Replication) -> DAG:
    """``plan >> replicate >> report``, never scheduled. One at a time, beside live runs with other target topics."""
    # `kafka_replication.planning.backfill.backfill_request` reads the values of the form.
    params = {
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
