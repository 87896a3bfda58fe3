"""The plan tasks of a backfill, and of a replication that copies data intervals."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException, DownstreamTasksSkipped

from kafka_replication.config import Replication
from kafka_replication.orchestration import task_run
from kafka_replication.orchestration.operators.step_operators import SUMMARY, StepOperator
from kafka_replication.orchestration.pages import form
from kafka_replication.planning.backfill.backfill_request import BackfillRequest, parse

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_replication.planning.plan import Plan


def request_of(replication: Replication, params: Any) -> BackfillRequest:
    """The request that the trigger's form describes; what is empty means all. Raises BadInput."""
    return parse(
        replication,
        topics=form.lines(params["topics"]),
        partitions=params["partitions"],
        from_=params["from"],
        until=params["until"],
        target_topic=params["target_topic"],
        dry_run=params["dry_run"],
    )


class BackfillPlanOperator(StepOperator):
    """Reads the form strictly, and plans under the lease. A dry run prints the plan and skips the other tasks."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Returns the plan in numbers. A dry run pushes the whole plan instead."""
        from kafka_replication.runs import backfill as backfilling
        from kafka_replication.runs.leasing import backfill_scope, topics_of

        with task_run.failing():
            request = request_of(self.replication, context["params"])
        if request.dry_run:
            self._show(context, request)
            raise DownstreamTasksSkipped(tasks=sorted(self.get_flat_relative_ids(upstream=False)))  # type: ignore[no-untyped-call]
        with task_run.working(
            self.replication,
            context,
            lambda run: backfill_scope(run, request.topics, request.target_topic),
            release="on failure",
        ) as run:
            plan = backfilling.prepare(run, request)
            run.hold.narrow(topics_of(plan))
        return _numbers(run.run_id, plan)

    def _show(self, context: Context, request: BackfillRequest) -> None:
        from kafka_replication.documents import as_json
        from kafka_replication.reporting import backfill as backfill_report
        from kafka_replication.runs import backfill as backfilling

        with task_run.opened(self.replication, context) as run:
            plan = backfilling.preview(run, request)
        self.log.info("dry run, nothing is changed; a backfill would do:\n%s", backfill_report.plan_table(plan))
        context["ti"].xcom_push("return_value", as_json(backfill_report.document(plan)))
        context["ti"].xcom_push(SUMMARY, backfill_report.plan_table(plan))
        if plan.refused:
            raise AirflowFailException("; ".join(line.plan.what for line in plan.refused))


class IntervalPlanOperator(StepOperator):
    """Plans the DAG run's data interval, under the lease that the run's later tasks take over."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Returns the plan in numbers."""
        from kafka_replication.runs import interval
        from kafka_replication.runs.leasing import interval_scope, topics_of
        from kafka_replication.watermarks.boundaries import check_interval

        dag_run = context["dag_run"]
        with task_run.failing():
            start, end = check_interval(
                self.replication.name, dag_run.data_interval_start, dag_run.data_interval_end, datetime.now(UTC)
            )
        with task_run.working(self.replication, context, interval_scope, release="on failure") as run:
            plan = interval.prepare_interval(run, start, end)
            run.hold.narrow(topics_of(plan))
        return _numbers(run.run_id, plan)


def _numbers(run_id: str, plan: Plan) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "idle": plan.idle,
        "to_copy": len(plan.to_copy),
        "to_verify": len(plan.pending),
        "offsets": sum(partition.copy.span for partition in plan.to_copy if partition.copy),
    }
