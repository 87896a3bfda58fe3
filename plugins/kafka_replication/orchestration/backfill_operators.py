"""The tasks of a backfill, and of a replication that copies data intervals: plan a range, copy it slice after slice."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException, DownstreamTasksSkipped

from kafka_replication.orchestration import task_run
from kafka_replication.orchestration.operators import FAILED_VERIFICATIONS, StepOperator
from kafka_replication.orchestration.spark_submit import ReplicationSparkSubmitOperator
from kafka_replication.planning.backfill_request import BackfillRequest, parse
from kafka_replication.planning.plan import Plan
from kafka_replication.reporting import backfill as backfill_report
from kafka_replication.runs import backfill as backfilling
from kafka_replication.runs import interval, slices, steps
from kafka_replication.spark.jobs import VERIFY_RESULT
from kafka_replication.watermarks.boundaries import check_interval

if TYPE_CHECKING:
    from airflow.sdk import Context


class BackfillPlanOperator(StepOperator):
    """Read the form, strictly, and plan under the lease. A dry run prints what it would mean and skips the rest."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Returns what the plan comes to; a dry run pushes its whole document instead."""
        params = context["params"]
        with task_run.failing():
            request = parse(
                self.replication,
                topics=params["topics"],
                partitions=params["partitions"],
                from_=params["from"],
                until=params["until"],
                target_topic=params["target_topic"],
                dry_run=params["dry_run"],
            )
        if request.dry_run:
            self._show(context, request)
            raise DownstreamTasksSkipped(tasks=sorted(self.get_flat_relative_ids(upstream=False)))  # type: ignore[no-untyped-call]
        with task_run.working(self.replication, context, release="on failure") as run:
            made = backfilling.prepare(run, request)
        return _numbers(run.run_id, made)

    def _show(self, context: Context, request: BackfillRequest) -> None:
        with task_run.opened(self.replication, context) as run:
            made = backfilling.preview(run, request)
        self.log.info("dry run, nothing is changed; a backfill would do:\n%s", backfill_report.plan_table(made))
        context["ti"].xcom_push("return_value", backfill_report.as_json(made))
        if made.refused:
            raise AirflowFailException("; ".join(each.plan.what for each in made.refused))


class IntervalPlanOperator(StepOperator):
    """Plan the DAG run's data interval, under the lease that the run's later tasks take over."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Returns what the plan comes to, in numbers."""
        found = context["dag_run"]
        with task_run.failing():
            start, end = check_interval(
                self.replication.name, found.data_interval_start, found.data_interval_end, datetime.now(UTC)
            )
        with task_run.working(self.replication, context, release="on failure") as run:
            made = interval.prepare_interval(run, start, end)
        return _numbers(run.run_id, made)


def _numbers(run_id: str, made: Plan) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "idle": made.idle,
        "to_copy": len(made.to_copy),
        "to_verify": len(made.pending),
        "offsets": sum(p.copy.span for p in made.to_copy if p.copy),
    }


class SlicesOperator(ReplicationSparkSubmitOperator):
    """Copy, verify and advance in bounded slices; starts no Spark when nothing is left.

    A retry goes on where the last one ended.
    """

    def execute(self, context: Context) -> dict[str, int]:  # type: ignore[override]  # the provider's returns nothing
        """Returns what was copied, in numbers."""
        with task_run.working(self.replication, context) as run:
            made = task_run.planned(run)
            if made.idle:
                self.log.info("nothing to do: all of it is on the target already, and verified; no Spark is started")
                steps.advance(run, made.workable)
                return {"ranges": 0, "records": 0, "bytes": 0}
            with self.launcher() as spark:
                done = slices.copy_slices(run, made, spark)
        context["ti"].xcom_push(
            FAILED_VERIFICATIONS, [VERIFY_RESULT.dump_json(each).decode() for each in done.not_verified]
        )
        lines = [
            f"{each.key.source} {each.range}: {each.error}\n  remedy: {each.remedy or 'run again'}"
            for each in done.not_copied
        ]
        lines += [
            f"{each.key.source}: {each.error}\n  remedy: {each.remedy or 'run again'}" for each in done.not_verified
        ]
        if lines:
            healing = bool(done.not_verified) or any(each.retriable or each.fenced for each in done.not_copied)
            raise task_run.failure(f"{len(lines)} partitions are not done\n" + "\n".join(lines), retriable=healing)
        return {"ranges": len(made.to_copy), "records": done.records, "bytes": done.bytes}
