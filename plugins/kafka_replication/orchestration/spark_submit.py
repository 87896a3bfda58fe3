"""Copy and verify on Spark, submitted through the Spark provider."""

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

    Nothing is a template field: what is submitted is known only as the task runs, and holds no secret.
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
        """Submits this task's jobs."""
        return SubmitLauncher(self._submission)


class CopyOperator(ReplicationSparkSubmitOperator):
    """Copy the planned ranges; starts no Spark when there are none.

    Fails if a range failed, after all of them were tried.
    """

    def execute(self, context: Context) -> dict[str, int]:  # type: ignore[override]  # the provider's returns nothing
        """Returns what was copied, in numbers."""
        with task_run.working(self.replication, context) as run:
            made = task_run.planned(run)
            if not made.to_copy:
                self.log.info("nothing to copy: no Spark is started")
                return {"ranges": 0, "records": 0, "bytes": 0}
            for each in made.to_copy:
                self.log.info("to copy: %s %s -> %s", each.key.source, each.copy, each.key.target_topic)
            with self.launcher() as spark:
                results = steps.copy(run, made, spark).copies
        self._tell(results)
        return {
            "ranges": len(results),
            "records": sum(r.copied for r in results),
            "bytes": sum(r.bytes for r in results),
        }

    def _tell(self, results: list[CopyResult]) -> None:
        for each in results:
            if each.error:
                self.log.error(
                    "FAILED %s %s: %s\n  remedy: %s",
                    each.key.source,
                    each.range,
                    each.error,
                    each.remedy or "run again",
                )
            elif each.copied:
                text = "copied %s %s: %d records, %d bytes, %.1f s"
                self.log.info(text, each.key.source, each.range, each.copied, each.bytes, each.seconds)
            else:
                self.log.info("%s %s is on the target already", each.key.source, each.range)
        if failed := [each for each in results if each.error]:
            lines = "\n".join(f"{each.key.source} {each.range}: {each.error}" for each in failed)
            healing = any(each.retriable or each.fenced for each in failed)
            raise task_run.failure(
                f"{len(failed)} of {len(results)} ranges were not copied\n{lines}", retriable=healing
            )


class VerifyOperator(ReplicationSparkSubmitOperator):
    """Read back what is copied and not verified; starts no Spark when nothing is."""

    def execute(self, context: Context) -> dict[str, int]:  # type: ignore[override]  # the provider's returns nothing
        """Returns what was verified, in numbers."""
        with task_run.working(self.replication, context) as run:
            made = task_run.planned(run)
            results = [] if made.idle else self._verify(run, made)
        if not results:
            self.log.info("nothing to verify: no Spark is started")
        failed = [each for each in results if each.error]
        context["ti"].xcom_push(FAILED_VERIFICATIONS, [VERIFY_RESULT.dump_json(each).decode() for each in failed])
        if failed:
            lines = "\n".join(
                f"{each.key.source}: {each.error}\n  remedy: {each.remedy or 'run again'}" for each in failed
            )
            raise task_run.failure(
                f"{len(failed)} of {len(results)} partitions were not verified\n{lines}",
                retriable=any(each.retriable for each in failed),
            )
        return {"partitions": len(results), "records": sum(r.records for r in results)}

    def _verify(self, run: LeasedRun, made: Plan) -> list[VerifyResult]:
        with OnDemand(self.launcher) as spark:
            results = steps.verify(run, made.workable, spark, made.receipts_from)
        for each in results:
            self.log.info(
                "verified %s %s: %d records, %.1f s", each.key.source, each.verified, each.records, each.seconds
            )
        return results
