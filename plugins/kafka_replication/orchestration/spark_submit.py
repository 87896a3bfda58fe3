"""Copy and verify on Spark, submitted through the Spark provider."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException

from kafka_replication.config import Replication
from kafka_replication.copying.engine import CopyResult
from kafka_replication.model.errors import BadInput, OutOfTime, Unreachable
from kafka_replication.orchestration import task_run
from kafka_replication.orchestration.connections import AirflowConnections
from kafka_replication.orchestration.operators import FAILED_VERIFICATIONS
from kafka_replication.planning.plan import Plan
from kafka_replication.runs import steps
from kafka_replication.runs.run import LeasedRun
from kafka_replication.runtime.stopping import end_group
from kafka_replication.spark.jobs import VERIFY_RESULT, Job, JobResult
from kafka_replication.verification.verify import VerifyResult

if TYPE_CHECKING:
    from airflow.sdk import Context

STOP_SECONDS = 3  # Airflow kills a task 5 s after it asked it to end


class ReplicationSparkSubmitHook(SparkSubmitHook):
    """The provider's hook with our reading of the connection: a missing one is an error, and local tasks get a second
    try.
    """

    def _resolve_connection(self) -> dict[str, Any]:
        spark = AirflowConnections().spark(self._conn_id)
        found: dict[str, Any] = super()._resolve_connection()
        return {**found, "master": spark.master}

    def submit_in_session(self, application: str, environment: dict[str, str]) -> None:
        """Submit and wait, in a process group of its own. The environment is Popen's alone, never ``--conf`` text."""
        self.submit(application, env={**os.environ, **environment}, start_new_session=True)

    def stop(self) -> None:
        """End spark-submit with everything it started on this machine; the driver's JVM gets a moment to end its
        executors.
        """
        process: subprocess.Popen[str] | None = self._submit_sp
        if process is not None:
            end_group(process, STOP_SECONDS)


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

    def on_kill(self) -> None:
        """Called when the task is stopped: nobody would stop Spark otherwise. Raises, for the task goes on else."""
        if isinstance(self._hook, ReplicationSparkSubmitHook):
            self._hook.stop()
            self._hook.on_kill()
        raise task_run.stopped()

    def launch(self, job: Job) -> JobResult:
        """A `kafka_replication.spark.jobs.Launcher`. Raises BadInput, ConnectionMissing, Unreachable."""
        from kafka_replication.spark import (
            submit,
        )  # imports pyspark, which would slow down every parsing of the DAG file

        with submit.workspace(job) as here:
            hook = self._hook = self._hook_for(
                job, submit.local_conf, [str(here.job), str(here.result)], str(here.package)
            )
            settings = submit.environment()
            settings["PATH"] = f"{settings['SPARK_HOME']}/bin{os.pathsep}{os.environ.get('PATH', os.defpath)}"
            try:
                self._submit(
                    hook, str(submit.script(job.kind)), settings, submit.out_of_time(job), submit.patience(job)
                )
            except FileNotFoundError as e:
                raise BadInput(
                    f"{e.filename} is not on the PATH", "install it, or correct spark-binary in the Spark connection"
                ) from e
            except AirflowException as e:
                if not here.result.exists():
                    raise Unreachable(
                        f"the Spark {job.kind} job left no result: {e}", "see Spark's log above; run again"
                    ) from e
            if not here.result.exists():
                raise Unreachable(f"the Spark {job.kind} job left no result", "see Spark's log above; run again")
            return here.read_result()

    def _submit(
        self, hook: ReplicationSparkSubmitHook, script: str, settings: dict[str, str], over: OutOfTime, seconds: float
    ) -> None:
        """Submit and wait, at most ``seconds``. Raises ``over`` after that."""
        is_over = threading.Event()

        def stop() -> None:
            is_over.set()
            hook.stop()

        timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), stop)
        timer.daemon = True
        timer.start()
        try:
            hook.submit_in_session(script, settings)
        except AirflowException:
            if is_over.is_set():
                raise over from None
            raise
        finally:
            timer.cancel()

    def _hook_for(
        self, job: Job, conf_for: Callable[[str], dict[str, str]], arguments: list[str], package: str
    ) -> ReplicationSparkSubmitHook:
        connection = self.replication.spark.connection
        conf = {
            **conf_for(AirflowConnections().spark(connection).master),
            "spark.log.level": "WARN",  # Spark's own INFO would bury the lines about the ranges
            **self.replication.spark.conf,
        }
        try:
            return ReplicationSparkSubmitHook(
                conf=conf,
                conn_id=connection,
                py_files=package,
                application_args=arguments,
                deploy_mode="client",
                name=f"kafka-replication {job.kind} {job.replication}",
            )
        except ValueError as e:
            raise BadInput(f"connection {connection!r}: {e}", "correct its extra, see docs/connections.md") from e


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
            results = steps.copy(run, made, self.launch).copies
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
        results = steps.verify(run, made.workable, self.launch, made.receipts_from)
        for each in results:
            self.log.info(
                "verified %s %s: %d records, %.1f s", each.key.source, each.verified, each.records, each.seconds
            )
        return results
