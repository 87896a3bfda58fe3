"""The tasks that every DAG of a replication has: ``plan >> replicate >> report``."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import TriggerRule

from kafka_replication.config import Replication
from kafka_replication.model.errors import ConfigError
from kafka_replication.orchestration.alerting import alerts
from kafka_replication.orchestration.operators.spark_submit import ReplicateOperator
from kafka_replication.orchestration.operators.step_operators import BrokenFileOperator, ReportOperator, StepOperator
from kafka_replication.orchestration.task_run import PLAN

REPLICATE, REPORT = "replicate", "report"
TASKS = (PLAN, REPLICATE, REPORT)
# A broker restarts and a leader moves in the first wait; it doubles, and the longest one is that of an outage.
RETRY_DELAY, LONGEST_RETRY_DELAY = timedelta(seconds=30), timedelta(minutes=10)


def default_args(replication: Replication) -> dict[str, object]:
    return {
        "owner": replication.owner,
        "retries": replication.retries.attempts,
        "retry_delay": RETRY_DELAY,
        "retry_exponential_backoff": 2,
        "max_retry_delay": LONGEST_RETRY_DELAY,
    }


def add_tasks(replication: Replication, plan: StepOperator) -> None:
    """Add the tasks after ``plan``. The report also runs after a failed replication, but never without a plan.

    Its trigger rule needs one success among the tasks directly before it, and ``plan`` is one of them.
    """
    alert, retry = alerts.on_failure(replication), alerts.on_retry(replication)
    plan.on_failure_callback, plan.on_retry_callback = [alert], [retry]
    replicate = ReplicateOperator(task_id=REPLICATE, replication=replication, on_retry_callback=retry)
    report = ReportOperator(
        task_id=REPORT,
        replication=replication,
        done_by=REPLICATE,
        trigger_rule=TriggerRule.ALL_DONE_MIN_ONE_SUCCESS,
        on_failure_callback=alert,
        on_retry_callback=retry,
        on_success_callback=alerts.on_success(replication),
    )
    plan >> replicate >> report
    plan >> report


def add_broken_tasks(rest: Replication, error: ConfigError) -> None:
    """Add the tasks for a file with mistakes. It has all of them, for a run that is already at work."""
    alert = alerts.on_failure(rest)
    plan, replicate, report = (BrokenFileOperator(task_id=name, error=error, retries=0) for name in TASKS)
    plan.on_failure_callback = report.on_failure_callback = [alert]
    report.trigger_rule = TriggerRule.ALL_DONE_MIN_ONE_SUCCESS
    plan >> replicate >> report
    plan >> report
