"""The command for records that could not be copied: ``failed list|show|retry|discard FILE``."""

from __future__ import annotations

from typing import Annotated

import typer

from kafka_replication.cli.command_frame import File, Json, Result, act
from kafka_replication.cli.gaps import user
from kafka_replication.model.failures import Action
from kafka_replication.runs.run import Run


def failed(
    action: Annotated[
        Action,
        typer.Argument(
            help="list, show, retry (copy again once the cause is gone) or discard (give up).", show_default=False
        ),
    ],
    file: File,
    topic: Annotated[str, typer.Option("--topic", help="Only of this source topic.")] = "",
    partition: Annotated[int | None, typer.Option("--partition", help="Only of this partition.")] = None,
    from_: Annotated[int | None, typer.Option("--from", help="Only from this source offset on.")] = None,
    until: Annotated[int | None, typer.Option("--until", help="Only before this source offset.")] = None,
    kind: Annotated[str, typer.Option("--kind", help="Only too_large, refused, unfaithful or transform.")] = "",
    state: Annotated[
        str,
        typer.Option(
            "--state", help="Only quarantined, skipped, retried or discarded; any. Not given: quarantined and skipped."
        ),
    ] = "",
    everything: Annotated[bool, typer.Option("--all", help="retry, discard: all of them.")] = False,
    by: Annotated[str, typer.Option("--by", help="Who decides; the user of this terminal if not given.")] = "",
    reason: Annotated[str, typer.Option("--reason", help="Why; the record's history shows it.")] = "",
    as_json: Json = False,
) -> None:
    """Show the records that could not be copied, copy them again once the cause is gone, or give them up.

    retry writes behind everything that is on the target: records that are newer at the source then lie before them.

    The exit code is 1 if a record that was to be retried or discarded stays as it was.
    """
    decides = action in (Action.RETRY, Action.DISCARD)

    def do(run: Run) -> Result:
        from kafka_replication.runs.failed.command import Asked, handle
        from kafka_replication.runs.failed.retry_discard import Decision

        asked = Asked(
            topic=topic, partition=partition, from_=from_, until=until, kind=kind, state=state, everything=everything
        )
        answer = handle(run, action, asked, Decision(by=(by or user()) if decides else by, reason=reason))
        return answer.document, answer.text, int(answer.failed)

    act(file, as_json, do, writes=True)
