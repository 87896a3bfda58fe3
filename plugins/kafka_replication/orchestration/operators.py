"""The tasks around copying: plan, advance, report. Each calls the step function that the command line calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException, DownstreamTasksSkipped

from kafka_replication.config import Replication
from kafka_replication.orchestration import task_run
from kafka_replication.planning import preflight
from kafka_replication.reporting.report import RunReport, plan_table
from kafka_replication.runs import steps
from kafka_replication.runs.run import Request
from kafka_replication.spark.jobs import VERIFY_RESULT
from kafka_replication.verification.verify import VerifyResult

if TYPE_CHECKING:
    from airflow.sdk import Context

FAILED_VERIFICATIONS = "failed_verifications"


class StepOperator(BaseOperator):
    """A task of one replication. The replication is no template field: nothing of it is rendered or stored by
    Airflow.
    """

    ui_color = "#e8f0fe"

    def __init__(self, *, replication: Replication, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.replication = replication

    def on_kill(self) -> None:
        """End at once and in order: an open transaction is aborted on the way out."""
        raise task_run.stopped()


class PlanOperator(StepOperator):
    """Snapshot and plan, under the lease that the run's later tasks take over.

    A dry run prints the plan and skips the rest.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Returns what the plan comes to, in numbers."""
        with task_run.failing():
            request = task_run.request_of(context["params"])
        if request.dry_run:
            self._show(context, request)
            raise DownstreamTasksSkipped(tasks=sorted(self.get_flat_relative_ids(upstream=False)))  # type: ignore[no-untyped-call]
        with task_run.working(self.replication, context, release="on failure") as run:
            made = steps.prepare(run, request)
        self.log.info("plan of run %s:\n%s", run.run_id, plan_table(made))
        return {
            "run_id": run.run_id,
            "idle": made.idle,
            "to_copy": len(made.to_copy),
            "to_verify": len(made.pending),
            "refused": len(made.refused),
            "offsets": sum(p.copy.span for p in made.to_copy if p.copy),
        }

    def _show(self, context: Context, request: Request) -> None:
        with task_run.opened(self.replication, context) as run:
            made, findings = steps.preview(run, request)
        for finding in findings:
            self.log.warning("%s", finding)
        self.log.info("dry run, nothing is changed; a run would do:\n%s", plan_table(made))
        with task_run.failing():
            preflight.raise_errors(findings)


class AdvanceOperator(StepOperator):
    """Move the stored watermarks to what is verified."""

    def execute(self, context: Context) -> dict[str, int]:
        """Returns the watermark of every partition and target: ``{"orders-0 -> dr.orders": 120}``."""
        with task_run.working(self.replication, context) as run:
            moved = steps.advance(run, task_run.planned(run).workable)
        for key, offset in sorted(moved.items()):
            self.log.info("%s: watermark %d", key, offset)
        return {f"{key.source} -> {key.target_topic}": offset for key, offset in sorted(moved.items())}


class ReportOperator(StepOperator):
    """Account for every range, give the lease back, and fail if a range failed. ``verified_by``: the task that
    verified.
    """

    def __init__(self, *, verified_by: str = "verify", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.verified_by = verified_by

    def execute(self, context: Context) -> None:
        """Pushes the report as its return value, before it fails."""
        with task_run.working(self.replication, context, release="always") as run:
            made = steps.report(run, task_run.planned(run), self._verifications(context))
        context["ti"].xcom_push("return_value", made.as_json())
        self.log.info("run %s: %s\n%s", made.run_id, made.outcome.replace("_", " "), made.table())
        if made.failed:
            raise AirflowFailException(_summary(made))

    def _verifications(self, context: Context) -> list[VerifyResult]:
        found = context["ti"].xcom_pull(task_ids=self.verified_by, key=FAILED_VERIFICATIONS) or []
        return [VERIFY_RESULT.validate_json(each) for each in found]


def _summary(made: RunReport) -> str:
    return (
        f"{len(made.failed)} of {len(made.ranges)} ranges failed; the others are done\n{made.table()}\nthen clear"
        " 'copy' with its downstream tasks, which redoes only what is left; what the plan refused needs a new run"
    )
