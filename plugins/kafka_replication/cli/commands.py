"""The command line: ``kafka-replication check|plan|run|backfill|status|verify|ledger|approve-gap|reset|audit FILE``,
``kafka-replication watch FILE...``, and ``kafka-replication init``.

Each command loads what it alone needs when it is called.
One document on stdout, everything else on stderr. Exit codes: 0 done or nothing to do, 1 something failed, 2 bad input.
``kafka-replication --verbose COMMAND FILE`` shows Spark's log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

import kafka_replication
from kafka_replication.cli import command_frame, exporter, files, repairs, terminal_progress, turning
from kafka_replication.cli import watch as watching
from kafka_replication.cli.command_frame import File, Json, Result, act, until_time
from kafka_replication.model.choices import EARLY, TRANSACTIONAL
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning import backfill_request, plan_codec
from kafka_replication.reporting.progress import StatusDocument, recent_runs, runs_at_work
from kafka_replication.reporting.run import RunReport, planned
from kafka_replication.reporting.status import VerifyDocument, status_table, verified_rows
from kafka_replication.reporting.table import (
    CheckDocument,
    CheckFailureDocument,
    EngineRow,
    PlanDocument,
    PlanFailureDocument,
    verdict,
)
from kafka_replication.runs import runner, steps
from kafka_replication.runs.clusters import together
from kafka_replication.runs.leasing import EVERYTHING, leased, live_scope
from kafka_replication.runs.reporting import standing
from kafka_replication.runs.run import Request, Run
from kafka_replication.runtime.deadline import Deadline
from kafka_replication.spark.launcher import Launcher

HELP = """Replicate Kafka topics in verified batches, exactly once, from a terminal.

Begin with init, which writes a replication's YAML file, then plan and run FILE. One document on stdout, everything else
on stderr. Exit codes: 0 done or nothing to do, 1 something failed, 2 a mistake in the file or in the arguments.
"""
app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=HELP)
Topic = Annotated[list[str], typer.Option("--topic", help="Only this topic; may be given several times.")]
FileOrFolder = Annotated[
    Path | None,
    typer.Argument(
        metavar="[FILE|FOLDER]", help="The replication's YAML file, or a folder of them.", show_default=False
    ),
]
Until = Annotated[str, typer.Option("--until", help="Stop at this RFC 3339 time instead of the present end.")]


def _request(run: Run, topics: list[str], until: str, dry_run: bool = False) -> Request:
    """Raises BadInput for a topic that the file does not select."""
    named = backfill_request.parse_topics(run.replication, topics)
    return Request(named, until_time(until) if until else None, dry_run)


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"kafka-replication {kafka_replication.__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Spark's log on stderr, instead of in a file that is shown on failure.")
    ] = False,
    version: Annotated[  # noqa: ARG001 - its callback says it
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    context.obj = verbose


def check(
    context: typer.Context,
    file: File,
    as_json: Json = False,
    spark: Annotated[bool, typer.Option("--spark", help="Start Spark, too, and let a worker import its code.")] = False,
) -> None:
    """Check file, store, connections, clusters, all access rights and what a run would refuse; copy nothing."""

    def action(run: Run) -> Result:
        from kafka_replication.runs import checking

        checked = checking.check(run)
        findings = [
            *command_frame.store_findings(),
            *checked.findings,
            *command_frame.notifier_findings(run.replication),
        ]
        if not spark:
            return _checked(run, findings, checked.engines)

        def with_spark(run: Run, launcher: Launcher) -> Result:
            return _checked(run, [*findings, *checking.check_spark(run, launcher)], checked.engines)

        return terminal_progress.with_spark(run, context.obj, with_spark)

    act(file, as_json, action, looks=True)


def _checked(run: Run, findings: Sequence[Trouble], engines: list[EngineRow]) -> Result:
    bad = any(finding.severity == "error" for finding in findings)
    said: Any = {"replication": run.replication.name, "ok": not bad, "findings": findings, "engines": engines}
    away = list(run.clusters.away.values())
    document = CheckFailureDocument.of(together(away), **said) if away else CheckDocument(**said)
    lines = [*map(str, findings), *(row.line() for row in engines), verdict(findings)]
    return document, "\n".join(lines), int(bad)


def plan(file: File, as_json: Json = False, topic: Topic = [], until: Until = "") -> None:  # noqa: B006 - typer's way
    """Show what a run would do, and change nothing.

    A plan needs both clusters: while one does not answer, the findings about the other one are shown.
    """

    def action(run: Run) -> Result:
        request = _request(run, topic, until, dry_run=True)
        steps.check_functions(run)
        if run.clusters.away:
            return _not_planned(run)
        preview, findings = steps.preview(run, request)
        refuses = bool(preview.refused) or any(finding.severity == "error" for finding in findings)
        document = plan_codec.as_json(PlanDocument.of(preview, findings))
        return document, "\n".join([*map(str, findings), *planned(preview, findings)]), int(refuses)

    act(file, as_json, action, looks=True)


def _not_planned(run: Run) -> Result:
    """The result of a plan without ranges: one cluster does not answer, so that a position or an end is not known."""
    findings = steps.one_side_findings(run, run.clusters.away)
    said = "no plan: it needs both clusters; `kafka-replication status` shows what is known of each partition"
    error = together(list(run.clusters.away.values()))
    document = PlanFailureDocument.of(error, replication=run.replication.name, findings=findings)
    return document, "\n".join([*map(str, findings), said]), 1


def run(context: typer.Context, file: File, as_json: Json = False, topic: Topic = [], until: Until = "") -> None:  # noqa: B006
    """Copy, verify and advance in this terminal; the Spark connection names where Spark runs."""

    def action(run: Run) -> Result:
        request = _request(run, topic, until)
        return terminal_progress.with_spark(
            run, context.obj, lambda run, launcher: _reported(runner.execute(run, launcher, request))
        )

    act(file, as_json, watching.watched(action), failed=watching.run_failed, writes=True)


def _reported(report: RunReport, text: str = "") -> Result:
    return report, f"{text or report.table()}\n{report.summary()}", int(report.outcome == "failed")


def backfill(
    context: typer.Context,
    file: File,
    topic: Annotated[
        list[str], typer.Option("--topic", help="A source topic; may be given several times.", show_default=False)
    ],
    from_: Annotated[str, typer.Option("--from", help="First offset, or an RFC 3339 time.", show_default=False)],
    until: Annotated[
        str, typer.Option("--until", help="The first offset or time that is not copied.", show_default=False)
    ],
    partition: Annotated[
        list[str], typer.Option("--partition", help="Only this partition; may be given several times.")
    ] = [],  # noqa: B006
    target_topic: Annotated[
        str, typer.Option("--target-topic", help="Copy to this topic instead of the replication's own.")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be copied, and change nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Copy a range of offsets or times in slices, and verify each slice. Skip what is on the target already."""

    def action(run: Run) -> Result:
        from kafka_replication.reporting import backfill as backfill_report
        from kafka_replication.runs import backfill as backfilling

        request = backfill_request.parse(
            run.replication,
            topics=topic,
            partitions=partition,
            from_=from_,
            until=until,
            target_topic=target_topic,
            dry_run=dry_run,
        )
        if dry_run:
            preview = backfilling.preview(run, request)
            return backfill_report.document(preview), backfill_report.plan_table(preview), int(bool(preview.refused))

        def execute(run: Run, launcher: Launcher) -> Result:
            report = backfilling.execute(run, launcher, request)
            return _reported(report, "" if report.ranges else backfill_report.nothing_done(report))

        return terminal_progress.with_spark(run, context.obj, execute)

    failed = partial(watching.run_failed, is_backfill=True)
    act(file, as_json, watching.watched(action), failed=failed, writes=not dry_run)


def status(
    file: FileOrFolder = None,
    as_json: Json = False,
    watch: Annotated[bool, typer.Option("--watch", help=files.WATCH_HELP)] = False,
) -> None:
    """Show source end, position, watermark, lag and last verification of each partition, and how far a run is.

    Without a file, or for a folder: one line for each replication, as `overview`.
    The exit code is 1 if a cluster does not answer, or if a partition is refused, does not answer, is beyond
    alerts.lag, or is unverified for longer than a day.
    """

    if file is None or file.is_dir():
        files.show(file, as_json=as_json, watch=watch)
        return

    def action(run: Run) -> Result:
        from kafka_replication.reporting.causes import problem_lines, problems

        rows = terminal_progress.status_rows(run)
        wrong = problems(run.replication, rows, now := datetime.now(UTC))
        at_work = runs_at_work(run.store, run.replication.name)
        recent = recent_runs(run.store, run.replication.name)
        document = StatusDocument(
            replication=run.replication.name,
            promise=run.clusters.promise,
            running=at_work[0] if at_work else None,
            at_work=at_work,
            runs=recent,
            problems=wrong,
            partitions=rows,
        )
        died = (str(latest) for latest in recent[:1] if latest.state == "died")
        early = [f"NOTE {EARLY}"] if run.clusters.promise != TRANSACTIONAL else []
        told = problem_lines(run.replication, rows, now)
        lines = [*map(str, at_work), *died, status_table(rows), *early, *told]
        return document, "\n".join(lines), int(bool(wrong))

    def watching(run: Run) -> Result:
        terminal_progress.watch(lambda: action(run)[1])
        raise typer.Exit(0)

    if watch and as_json:
        raise typer.BadParameter("--watch shows a table: leave out --json, or call status --json repeatedly")
    act(file, as_json, watching if watch else action, Deadline() if watch else None, looks=True)


def verify(context: typer.Context, file: File, as_json: Json = False) -> None:
    """Verify what is copied but not verified yet, and advance the watermarks.

    The exit code is 1 if copies differ, or if source or target are not what the ledger says.
    """

    def action(run: Run, launcher: Launcher) -> Result:
        with leased(run, live_scope(run)) as leased_run:
            steps.fence_stale_producers(leased_run)
            keys = [key for key in run.view().positions if leased_run.holds(key.target_topic)]
            with launcher as spark:
                results = steps.verify(leased_run, keys, spark)
            moved = steps.advance(leased_run, keys)
            rows = verified_rows(results, moved, standing(leased_run, Run.snapshot_to_show))
        document = VerifyDocument(replication=run.replication.name, ranges=rows)
        text = "\n".join(map(str, rows)) or "nothing to verify"
        return document, text, int(any(row.error for row in rows))

    act(file, as_json, lambda run: terminal_progress.with_spark(run, context.obj, action), writes=True)


Rebuild = Annotated[bool, typer.Option("--rebuild-store", help="Restore the watermark store from the ledger.")]
Force = Annotated[
    bool, typer.Option("--force", help="With --rebuild-store: lower watermarks that are ahead of the ledger.")
]


def ledger(
    file: File,
    as_json: Json = False,
    rebuild_store: Rebuild = False,
    force: Force = False,
) -> None:
    """Show the entries of the target's ledger: positions, verified coverage and receipts."""
    if force and not rebuild_store:
        raise typer.BadParameter("--force is for --rebuild-store alone")

    def restore(run: Run) -> Result:
        from kafka_replication.reporting.ledger import RebuiltDocument
        from kafka_replication.runs import repair

        with leased(run, EVERYTHING) as leased_run:
            steps.fence_stale_producers(leased_run)
            rows = repair.rebuild_store(leased_run, force=force)
        document = RebuiltDocument(replication=run.replication.name, partitions=rows)
        text = repair.rebuilt_table(rows) if rows else "nothing to restore: the ledger has no entries"
        return document, text, 0

    def action(run: Run) -> Result:
        from kafka_replication.reporting.ledger import ledger_document, ledger_table

        view = run.view()
        receipts = run.clusters.ledger.receipts(dict.fromkeys(view.positions))
        counts = {key: len(receipts.all(key)) for key in view.positions}
        text = ledger_table(view, counts) if counts else "the ledger has no entries"
        return ledger_document(run.replication.name, view, receipts), text, 0

    act(file, as_json, restore if rebuild_store else action, writes=rebuild_store, looks=not rebuild_store)


# In the order in which a person needs them; the commands for lost records come last.
COMMANDS: Mapping[str, Callable[..., None]] = {
    "init": files.init,
    "check": check,
    "plan": plan,
    "run": run,
    "status": status,
    "overview": files.overview,
    "watch": watching.watch,
    "exporter": exporter.exporter,
    "backfill": backfill,
    "verify": verify,
    "audit": repairs.audit,
    "ledger": ledger,
    "certify": repairs.certify,
    "adopt": repairs.adopt,
    "drill": repairs.drill,
    "cutover": turning.cutover,
    "failover": turning.failover,
    "failback": turning.failback,
    "failed": repairs.failed,
    "groups": repairs.groups,
    "acls": repairs.acls,
    "approve-gap": repairs.approve_gap,
    "reset": repairs.reset,
}
for name, command in COMMANDS.items():
    app.command(name=name)(command)
