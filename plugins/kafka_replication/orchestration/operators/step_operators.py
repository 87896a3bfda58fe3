"""The tasks before and after the work: plan and report. They call the same step functions as the command line.

Airflow imports a DAG file again and again, so what only a running task needs is imported where it runs, here and in all
modules that DAG files import.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException, DownstreamTasksSkipped

from kafka_replication.config import Replication
from kafka_replication.model.errors import ConfigError
from kafka_replication.orchestration import task_run
from kafka_replication.orchestration.operators import assets, stats

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_replication.reporting.run.report import RunReport
    from kafka_replication.runs.run import Request

log = logging.getLogger(__name__)
NOT_DONE = "not_done"  # the XCom with what the report needs of the task that copied
SUMMARY = "summary"  # the XCom with the text for people; Airflow's page folds a JSON document


class StepOperator(BaseOperator):
    """A task of one replication. The replication is not a template field, so Airflow neither renders nor stores it."""

    ui_color = "#e8f0fe"

    def __init__(self, *, replication: Replication, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.replication = replication

    def on_kill(self) -> None:
        """Raises an exception, so that an open transaction is aborted before the process ends."""
        raise task_run.stopped()


class BrokenFileOperator(BaseOperator):
    """A task of a replication whose file has mistakes. It names them and fails, without a retry: a person mends it."""

    ui_color = "#fde3e3"

    def __init__(self, *, error: ConfigError, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.what, self.remedy = error.what, error.remedy

    def execute(self, context: Context) -> None:  # noqa: ARG002 - Airflow's signature
        with task_run.failing():
            raise ConfigError(self.what, self.remedy)


class PlanOperator(StepOperator):
    """Takes a snapshot and plans, under the lease that the run's later tasks take over.

    A dry run prints the plan and skips the other tasks.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Returns the plan in numbers."""
        from kafka_replication.reporting.run.report import plan_table
        from kafka_replication.runs import steps
        from kafka_replication.runs.leasing import live_scope, topics_of

        with task_run.failing():
            request = task_run.request_of(self.replication, context["params"])
        if request.dry_run:
            self._show(context, request)
            raise DownstreamTasksSkipped(tasks=sorted(self.get_flat_relative_ids(upstream=False)))  # type: ignore[no-untyped-call]
        with task_run.working(
            self.replication, context, lambda run: live_scope(run, request.topics), release="on failure"
        ) as run:
            plan = steps.prepare(run, request)
            run.hold.narrow(topics_of(plan))
        self.log.info("plan of run %s:\n%s", run.run_id, plan_table(plan))
        return {
            "run_id": run.run_id,
            "idle": plan.idle,
            "to_copy": len(plan.to_copy),
            "to_verify": len(plan.pending),
            "refused": len(plan.refused),
            "notes": list(plan.notes),
            "offsets": sum(partition.copy.span for partition in plan.to_copy if partition.copy),
        }

    def _show(self, context: Context, request: Request) -> None:
        from kafka_replication.documents import as_json
        from kafka_replication.planning.checks import preflight
        from kafka_replication.reporting.run.report import dry_run, plan_summary, planned
        from kafka_replication.runs import steps

        with task_run.opened(self.replication, context) as run:
            plan, findings = steps.preview(run, request)
        for finding in findings:
            finding.log_to(log)
        for text in planned(plan, findings):
            self.log.info("dry run, nothing is changed; a run would do:\n%s", text)
        context["ti"].xcom_push("return_value", as_json(dry_run(plan)))
        context["ti"].xcom_push(SUMMARY, plan_summary(plan))
        with task_run.failing():
            preflight.raise_errors(findings)


class ReportOperator(StepOperator):
    """Reports every range, releases the lease, and fails if a range failed. Else the topics that were verified are
    updated as assets. ``done_by`` is the id of the task that copied and verified.
    """

    def __init__(self, *, done_by: str, **kwargs: Any) -> None:
        super().__init__(outlets=[assets.alias_of(kwargs["replication"])], **kwargs)
        self.done_by = done_by

    def execute(self, context: Context) -> None:
        """Pushes the report as its return value, before it fails."""
        from kafka_replication.documents import as_json
        from kafka_replication.runs import steps
        from kafka_replication.runs.leasing import NOTHING

        with task_run.working(self.replication, context, lambda run: NOTHING, release="always") as run:
            told = context["ti"].xcom_pull(task_ids=self.done_by, key=NOT_DONE)
            plan = task_run.planned(run)
            report = steps.report(run, plan, steps.NotDone.from_json(told))
            verified = steps.verified_now(run, plan, report)
        stats.reported(self.replication.name, report)
        context["ti"].xcom_push("return_value", as_json(report))
        context["ti"].xcom_push(SUMMARY, f"{report.summary()}\n{report.table()}")
        self.log.info("run %s: %s\n%s", report.run_id, report.summary(), report.table())
        if report.failed:
            raise AirflowFailException(_summary(report))
        assets.announce(context, self.replication, report, verified)


def _summary(report: RunReport) -> str:
    return (
        f"{len(report.failed)} of {len(report.ranges)} ranges failed; the others are done\n{report.table()}\n"
        "Follow the remedies, then clear 'replicate' with its downstream tasks: only what is left is repeated. For a"
        " range that the plan refused, trigger a new run instead."
    )
