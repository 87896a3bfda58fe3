"""The tasks that every DAG of a replication has: ``plan >> replicate >> report``."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import TriggerRule

from kafka_replication.config import Replication
from kafka_replication.orchestration import alerts
from kafka_replication.orchestration.operators import ReportOperator, StepOperator
from kafka_replication.orchestration.spark_submit import ReplicateOperator

REPLICATE = "replicate"


def default_args(replication: Replication) -> dict[str, object]:
    retries = replication.retries
    return {
        "owner": replication.owner,
        "retries": retries.attempts,
        "retry_delay": timedelta(seconds=retries.delay),
        "retry_exponential_backoff": 2,
        "max_retry_delay": timedelta(seconds=retries.max_delay),
    }


def add_tasks(replication: Replication, plan: StepOperator) -> None:
    """Add the tasks after ``plan``. The report also runs after a failed replication, but never without a plan.

    Its trigger rule needs one success among the tasks directly before it, and ``plan`` is one of them.
    """
    alert = alerts.on_failure(replication)
    plan.on_failure_callback = [alert]
    replicate = ReplicateOperator(task_id=REPLICATE, replication=replication)
    report = ReportOperator(
        task_id="report",
        replication=replication,
        verified_by=REPLICATE,
        trigger_rule=TriggerRule.ALL_DONE_MIN_ONE_SUCCESS,
        on_failure_callback=alert,
        on_success_callback=alerts.on_success(replication),
    )
    plan >> replicate >> report
    plan >> report
