"""The tasks of a run: plan, report, and between them the one that copies, reads back and advances, on Spark through the
Spark provider. They call the same step functions as the command line.

Airflow imports a DAG file again and again, so what only a running task needs is imported where it runs, here and in all
modules that DAG files import.

The plan tasks of a backfill, and of a replication that copies data intervals.

Target topics as Airflow's assets: each has an event when, and only when, a run has verified its ranges.

An asset among a task's outlets would have an event whenever the task succeeds, also for a run that copied nothing of
its topic. So the report task has one alias, and adds the topics that were verified. A task that fails has no events.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Asset, AssetAlias, BaseOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, DownstreamTasksSkipped

from kafka_replication.config import Replication
from kafka_replication.model.errors import ConfigError
from kafka_replication.model.trouble import raise_errors
from kafka_replication.orchestration import observability, task_run
from kafka_replication.planning.backfill_request import BackfillRequest, parse

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_replication.copying.engine import CopyResult
    from kafka_replication.model.errors import ReplicationError
    from kafka_replication.orchestration.spark_hook import HookSubmission
    from kafka_replication.planning.plan import Plan
    from kafka_replication.runs import steps
    from kafka_replication.runs.run import Request
    from kafka_replication.spark.launcher import Launcher
    from kafka_replication.verification.verify import VerifyResult

log = logging.getLogger(__name__)


OTHER_KIND: Final = "x-kafka-replication"  # the scheme for a kind of target that somebody else wrote


def alias_of(replication: Replication) -> AssetAlias:
    """The alias of all target topics of a replication; its name is that of the replication."""
    return AssetAlias(name=replication.name, group="kafka-replication")


def asset_of(replication: Replication, target_topic: str) -> Asset:
    """The asset of one target topic: ``kafka://CONNECTION/TOPIC``. The connection's id stands for the cluster, because
    a DAG file knows no address, and an asset must not change its name when a broker does.
    """
    kind = replication.target.type
    scheme = OTHER_KIND if ":" in kind else kind
    uri = f"{scheme}://{quote(replication.target.connection, safe='')}/{quote(target_topic, safe='')}"
    return Asset(name=uri, uri=uri, group="kafka-replication")


NOT_DONE = "not_done"  # the XCom with what the report needs of the task that copied
SCHEDULED = "scheduled"  # a run of the DAG's schedule, as Airflow calls it
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
        from kafka_replication.reporting.run import plan_table
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
        return {**_numbers(run.run_id, plan), "refused": len(plan.refused), "notes": list(plan.notes)}

    def _show(self, context: Context, request: Request) -> None:
        from kafka_replication.documents import as_json
        from kafka_replication.reporting.run import dry_run, plan_summary, planned
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
            raise_errors(findings)


class ReportOperator(StepOperator):
    """Reports every range, releases the lease, and fails if a range failed. Else the topics that were verified are
    updated as assets. A scheduled run that a seal refused as a whole ends as skipped. ``done_by`` is the id of the task
    that copied and verified.
    """

    def __init__(self, *, done_by: str, **kwargs: Any) -> None:
        super().__init__(outlets=[alias_of(kwargs["replication"])], **kwargs)
        self.done_by = done_by

    def execute(self, context: Context) -> None:
        """Pushes the report as its return value, before it fails."""
        from kafka_replication.documents import as_json
        from kafka_replication.runs import groups, steps
        from kafka_replication.runs.leasing import NOTHING

        with task_run.working(self.replication, context, lambda run: NOTHING, release="always") as run:
            told = context["ti"].xcom_pull(task_ids=self.done_by, key=NOT_DONE)
            plan = task_run.planned(run)
            report = steps.report(run, plan, steps.NotDone.from_json(told))
            verified = steps.verified_now(run, plan, report)
            groups.follow(run)
        observability.reported(self.replication.name, report, sealed=plan.is_sealed)
        context["ti"].xcom_push("return_value", as_json(report))
        context["ti"].xcom_push(SUMMARY, f"{report.summary()}\n{report.table()}")
        self.log.info("run %s: %s\n%s", report.run_id, report.summary(), report.table())
        if plan.is_sealed and context["dag_run"].run_type == SCHEDULED:  # nobody asked for it: no failure, no alert
            first = plan.refused[0]
            raise AirflowSkipException(f"all {len(plan.refused)} partitions: {first.what}. Remedy: {first.remedy}")
        if report.failed:
            raise AirflowFailException(
                f"{len(report.failed)} of {len(report.ranges)} ranges failed; the others are done\n{report.table()}\n"
                "Follow the remedies, then clear 'replicate' with its downstream tasks: only what is left is repeated."
                " For a range that the plan refused, trigger a new run instead."
            )
        events = context["outlet_events"][alias_of(self.replication)]  # once the task has succeeded
        for topic in verified:
            events.add(asset_of(self.replication, topic.topic), extra=topic.extra(report))


def request_of(replication: Replication, params: Any) -> BackfillRequest:
    """The request that the trigger's form describes; what is empty means all. Raises BadInput."""
    return parse(
        replication,
        topics=task_run.form_lines(params["topics"]),
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
        from kafka_replication.runs import backfill
        from kafka_replication.runs.leasing import interval_scope, topics_of
        from kafka_replication.watermarks.rules import check_interval

        dag_run = context["dag_run"]
        with task_run.failing():
            start, end = check_interval(
                self.replication.name, dag_run.data_interval_start, dag_run.data_interval_end, datetime.now(UTC)
            )
        with task_run.working(self.replication, context, interval_scope, release="on failure") as run:
            plan = backfill.prepare_interval(run, start, end)
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
