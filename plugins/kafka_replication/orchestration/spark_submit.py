"""The task that copies, reads back and advances, on Spark through the Spark provider."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from kafka_replication.config import Replication
from kafka_replication.orchestration import observability, task_run
from kafka_replication.orchestration.operators import NOT_DONE

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_replication.copying.engine import CopyResult
    from kafka_replication.model.errors import ReplicationError
    from kafka_replication.orchestration.spark_hook import HookSubmission
    from kafka_replication.runs import steps
    from kafka_replication.spark.launcher import Launcher
    from kafka_replication.verification.verify import VerifyResult


class OnSparkOperator(SparkSubmitOperator):
    """A task of one replication that starts Spark if it needs it.

    Client deploy mode: the driver runs on this machine. There are no template fields: the submission is only known when
    the task runs, and nothing secret is rendered.
    """

    template_fields: Sequence[str] = ()
    ui_color = "#fdf0e3"

    def __init__(self, *, replication: Replication, **kwargs: Any) -> None:
        super().__init__(
            conn_id=replication.spark.connection,
            conf=dict(replication.spark.conf),
            name=f"kafka-replication {replication.name}",
            deploy_mode="client",
            **kwargs,
        )
        self.replication = replication
        self._submission: HookSubmission | None = None  # once Spark is needed

    def launcher(self) -> Launcher:
        """A launcher that submits this task's jobs."""
        from kafka_replication.spark.launcher import Launcher

        def submission() -> HookSubmission:
            from kafka_replication.orchestration.spark_hook import HookSubmission

            self._submission = HookSubmission(self.replication)
            return self._submission

        return Launcher(submission)

    def on_kill(self) -> None:
        """Stop Spark when Airflow stops the task. Raises, because the task would otherwise keep running."""
        if self._submission is not None:
            self._submission.kill()
        raise task_run.stopped()


class ReplicateOperator(OnSparkOperator):
    """Copies the planned ranges, reads them back, and moves their watermarks, each partition by itself.

    Starts Spark only if something is left to do. A retry continues where the last try ended.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._lineage = observability.Lineage()  # until it is known

    def get_openlineage_facets_on_complete(self, task_instance: object) -> Any:  # noqa: ARG002 - its signature
        """The topics that were copied, also by a task that failed. OpenLineage's provider calls it by this name."""
        return self._lineage.as_openlineage()

    def execute(self, context: Context) -> dict[str, int]:  # type: ignore[override]  # the provider's returns nothing
        """Returns what was copied and read back, in numbers. Tries all ranges, then fails if one failed."""
        from kafka_replication.runs import steps

        with task_run.working_on_plan(self.replication, context) as (run, plan):
            if context["ti"].try_number > 1:  # of a task that failed, or was cleared
                plan = steps.resumed(run, plan)
            if plan.idle:
                self.log.info("nothing to do: the target is up to date, and verified; no Spark is started")
            for partition in plan.to_copy:
                key = partition.key
                self.log.info("to copy: %s %s -> %s", key.source, partition.copy, key.target_topic)
            with self.launcher() as spark:
                done = steps.replicate(run, plan, spark)
            # The results have texts alone. Who is alerted at once wants to know whether it is a cluster.
            away = run.clusters.away_now() if done.not_copied or done.not_verified else None
            self._lineage = observability.of_run(self.replication, run.clusters, done)
        context["ti"].xcom_push(NOT_DONE, done.not_done.as_json())
        observability.replicated(self.replication.name, done)
        self._log(done)
        self._fail_unless_done(done, away)
        return {
            "ranges": len(done.copied),
            "records": done.records,
            "bytes": done.bytes,
            "verified_records": sum(result.records for result in done.read_back),
        }

    def _log(self, done: steps.Replicated) -> None:
        for copied in done.copied:
            source = copied.key.source
            if copied.error:
                remedy = copied.remedy or "run again"
                self.log.error("FAILED %s %s: %s\n  remedy: %s", source, copied.range, copied.error, remedy)
            elif copied.copied:
                text = "copied %s %s: %d records, %d bytes, %.1f s"
                self.log.info(text, source, copied.range, copied.copied, copied.bytes, copied.seconds)
            else:
                self.log.info("%s %s is on the target already", source, copied.range)
        for read in done.read_back:
            if not read.error:
                text = "verified %s %s: %d records, %.1f s"
                self.log.info(text, read.key.source, read.verified, read.records, read.seconds)

    def _fail_unless_done(self, done: steps.Replicated, away: ReplicationError | None) -> None:
        """Raise, naming every range that was not copied and every partition that was not verified.

        ``away``: the error of a cluster that does not answer.
        """
        failed: list[tuple[str, CopyResult | VerifyResult]] = [
            *((f"{result.key.source} {result.range} was not copied", result) for result in done.not_copied),
            *((f"{result.key.source} was not verified", result) for result in done.not_verified),
        ]
        lines = [f"{what}: {result.error}\n  remedy: {result.remedy or 'run again'}" for what, result in failed]
        lines += [f"{error.what}\n  remedy: {error.remedy}" for error in done.not_advanced.values()]
        if lines:
            raise task_run.failure(
                f"{len(lines)} ranges are not done\n" + "\n".join(lines),
                retriable=any(result.retriable or getattr(result, "fenced", False) for _, result in failed),
                error=away,
            )
