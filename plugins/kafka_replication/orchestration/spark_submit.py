"""The tasks that copy and verify on Spark, submitted through the Spark provider."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from kafka_replication.config import Replication
from kafka_replication.copying.engine import CopyResult
from kafka_replication.orchestration import task_run
from kafka_replication.orchestration.operators import FAILED_VERIFICATIONS
from kafka_replication.orchestration.spark_hook import HookSubmission
from kafka_replication.planning.plan import Plan
from kafka_replication.runs import steps
from kafka_replication.runs.run import LeasedRun
from kafka_replication.spark.jobs import VERIFY_RESULT
from kafka_replication.spark.launcher import Launcher, OnDemand
from kafka_replication.spark.submit import SubmitLauncher
from kafka_replication.verification.verify import VerifyResult

if TYPE_CHECKING:
    from airflow.sdk import Context


class ReplicationSparkSubmitOperator(SparkSubmitOperator):
    """Runs one step's Spark jobs. Client deploy mode: the job file with the client settings stays on this machine.

    There are no template fields: the submission is only known when the task runs, and nothing secret is rendered.
    """

    template_fields: Sequence[str] = ()
    ui_color = "#fdf0e3"

    def __init__(self, *, replication: Replication, **kwargs: Any) -> None:
        super().__init__(
            conn_id=replication.spark.connection,
            conf=dict(replication.spark.conf),
            name=f"kafka-replication {replication.name}",
            deploy_mode="client",
            durable=False,
            **kwargs,
        )
        self.replication = replication
        self._submission = HookSubmission(replication)

    def on_kill(self) -> None:
        """Stop Spark when Airflow stops the task. Raises, because the task would otherwise keep running."""
        self._submission.kill()
        raise task_run.stopped()

    def launcher(self) -> Launcher:
        """A launcher that submits this task's jobs."""
        return SubmitLauncher(self._submission)


class CopyOperator(ReplicationSparkSubmitOperator):
    """Copies the planned ranges. Starts Spark only if there are some.

    Tries all ranges, then fails if one failed.
    """

    def execute(self, context: Context) -> dict[str, int]:  # type: ignore[override]  # the provider's returns nothing
        """Returns what was copied, in numbers."""
        with task_run.working(self.replication, context) as run:
            plan = task_run.planned(run)
            if not plan.to_copy:
                self.log.info("nothing to copy: no Spark is started")
                return {"ranges": 0, "records": 0, "bytes": 0}
            for partition in plan.to_copy:
                key = partition.key
                self.log.info("to copy: %s %s -> %s", key.source, partition.copy, key.target_topic)
            with self.launcher() as spark:
                results = steps.copy(run, plan, spark).copies
        self._report(results)
        return {
            "ranges": len(results),
            "records": sum(result.copied for result in results),
            "bytes": sum(result.bytes for result in results),
        }

    def _report(self, results: list[CopyResult]) -> None:
        """Log every range. Raises if one failed."""
        for result in results:
            source = result.key.source
            if result.error:
                remedy = result.remedy or "run again"
                self.log.error("FAILED %s %s: %s\n  remedy: %s", source, result.range, result.error, remedy)
            elif result.copied:
                text = "copied %s %s: %d records, %d bytes, %.1f s"
                self.log.info(text, source, result.range, result.copied, result.bytes, result.seconds)
            else:
                self.log.info("%s %s is on the target already", source, result.range)
        if failed := [result for result in results if result.error]:
            lines = "\n".join(f"{result.key.source} {result.range}: {result.error}" for result in failed)
            retriable = any(result.retriable or result.fenced for result in failed)
            raise task_run.failure(
                f"{len(failed)} of {len(results)} ranges were not copied\n{lines}", retriable=retriable
            )


class VerifyOperator(ReplicationSparkSubmitOperator):
    """Reads back what is copied and not verified yet. Starts Spark only if there is something to read."""

    def execute(self, context: Context) -> dict[str, int]:  # type: ignore[override]  # the provider's returns nothing
        """Returns what was verified, in numbers."""
        with task_run.working(self.replication, context) as run:
            plan = task_run.planned(run)
            results = [] if plan.idle else self._verify(run, plan)
        if not results:
            self.log.info("nothing to verify: no Spark is started")
        failed = [result for result in results if result.error]
        context["ti"].xcom_push(FAILED_VERIFICATIONS, [VERIFY_RESULT.dump_json(result).decode() for result in failed])
        if failed:
            lines = "\n".join(
                f"{result.key.source}: {result.error}\n  remedy: {result.remedy or 'run again'}" for result in failed
            )
            raise task_run.failure(
                f"{len(failed)} of {len(results)} partitions were not verified\n{lines}",
                retriable=any(result.retriable for result in failed),
            )
        return {"partitions": len(results), "records": sum(result.records for result in results)}

    def _verify(self, run: LeasedRun, plan: Plan) -> list[VerifyResult]:
        with OnDemand(self.launcher) as spark:
            results = steps.verify(run, plan.workable, spark, plan.receipts_from)
        for result in results:
            self.log.info(
                "verified %s %s: %d records, %.1f s",
                result.key.source,
                result.verified,
                result.records,
                result.seconds,
            )
        return results
