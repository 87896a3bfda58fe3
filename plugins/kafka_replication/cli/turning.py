"""The commands ``cutover``, ``failover`` and ``failback``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kafka_replication.cli.command_frame import File, Json, Result, act, user
from kafka_replication.cli.terminal_progress import with_spark
from kafka_replication.config.reading import load_replication
from kafka_replication.connections import EnvironmentConnections
from kafka_replication.model.errors import BadInput
from kafka_replication.runs.run import Run, open_run
from kafka_replication.spark.launcher import Launcher

Apply = Annotated[bool, typer.Option("--apply", help="Do the steps; without it nothing is changed.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; the ledger keeps it.")]
By = Annotated[str, typer.Option("--by", help="Who does it.", show_default="your login")]
Quiet = Annotated[float, typer.Option("--quiet", min=0.5, help="Seconds for which nobody may write.")]
Out = Annotated[Path | None, typer.Option("--certificate", help="Write the certificate to this folder, too.")]
Sample = Annotated[
    int, typer.Option("--audit", min=-1, help="Chunks of each partition to audit before the seal; -1: all of them.")
]


def cutover(
    context: typer.Context,
    file: File,
    apply: Apply = False,
    abort: Annotated[bool, typer.Option("--abort", help="Lead back, as long as nothing is sealed.")] = False,
    deny: Annotated[
        bool, typer.Option("--deny-producers", help="Deny producers to write to the source, by a rule (ACL).")
    ] = False,
    quiet: Quiet = 10.0,
    audit: Sample = 0,
    certificate: Out = None,
    reason: Reason = "",
    by: By = "",
    as_json: Json = False,
) -> None:
    """Move for good: copy to the end, find producers and consumers stopped, move groups, and seal the direction.

    May be called again from any place: each step looks anew. The exit code is 1 if a step could not be done.
    """

    def action(run: Run, launcher: Launcher) -> Result:
        from kafka_replication.runs import cutover as over

        if apply and abort:
            raise BadInput("--apply and --abort contradict each other", "give one of them")
        do = over.cutover if apply else over.abort if abort else over.preview
        wishes = over.Wishes(by=by or user(), reason=reason, quiet=quiet, deny=deny, sample=audit, out=certificate)
        document = do(run, wishes, launcher)
        return document, document.text, int(document.failed and document.applied)

    act(file, as_json, lambda run: with_spark(run, context.obj, action), writes=apply or abort, looks=not apply)


def failover(
    context: typer.Context,
    file: File,
    apply: Annotated[bool, typer.Option("--apply", help="Seal the direction; without it nothing is changed.")] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="Open a sealed direction again, if nobody has written to the target since.")
    ] = False,
    reason: Reason = "",
    by: By = "",
    as_json: Json = False,
) -> None:
    """Give the source up and go on at the target; never asks the source, which may be gone.

    Shows what is verified, and what only the source had at the last look. With --apply no run copies any more, what was
    copied is verified, consumer groups are moved to the best places that are proved, and others may write to the
    target.
    The exit code is 1 if something could not be verified or moved.
    """

    def action(run: Run, launcher: Launcher) -> Result:
        from kafka_replication.runs import failover as over
        from kafka_replication.runs.sealing import Asked

        if apply and undo:
            raise BadInput("--apply and --undo contradict each other", "give one of them")
        if apply:
            document = over.failover(run, Asked(by=by or user(), reason=reason), launcher)
        else:
            document = over.undo(run) if undo else over.preview(run)
        return document, document.text, int(document.failed and document.applied)

    act(file, as_json, lambda run: with_spark(run, context.obj, action), writes=apply, looks=not apply)


def failback(
    context: typer.Context,
    file: File,
    back: Annotated[Path, typer.Argument(help="The YAML file of the other direction, from the target to the source.")],
    apply: Apply = False,
    aside: Annotated[
        bool, typer.Option("--surplus-aside", help="Copy what only the source has to topics of their own (.surplus).")
    ] = False,
    quiet: Quiet = 10.0,
    audit: Sample = 0,
    certificate: Out = None,
    reason: Reason = "",
    by: By = "",
    as_json: Json = False,
) -> None:
    """Go back to the source of a sealed direction: bring back what was written to the target since, then go on.

    The other direction copies behind everything that the source has, and is cut over; then the first one goes on.
    May be called again from any place. The exit code is 1 if a step could not be done.
    """

    def action(run: Run, launcher: Launcher) -> Result:
        from kafka_replication.runs import cutover as over
        from kafka_replication.runs import failback as returning

        other = open_run(load_replication(back), EnvironmentConnections(), run.store, run.run_id, run.deadline)
        wishes = over.Wishes(by=by or user(), reason=reason, quiet=quiet, aside=aside, sample=audit, out=certificate)
        document = (returning.failback if apply else returning.preview)(run, other, wishes, launcher)
        return document, document.text, int(document.failed and document.applied)

    act(file, as_json, lambda run: with_spark(run, context.obj, action), writes=apply, looks=not apply)
