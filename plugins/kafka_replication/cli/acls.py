"""The command for rights on copies: ``acls plan|apply FILE``."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from kafka_replication.cli.command_frame import File, Json, Result, act
from kafka_replication.runs.run import Run


def acls(
    action: Annotated[
        Literal["plan", "apply"], typer.Argument(help="plan shows, apply also changes.", show_default=False)
    ],
    file: File,
    as_json: Json = False,
) -> None:
    """Carry the rights (ACLs) on copied topics and groups over to the target.

    apply prints on stderr what it is about to do, and may be repeated. The section acls of the file has the choices.
    """

    def do(run: Run) -> Result:
        from kafka_replication.runs import acls as carrying

        document = carrying.look(run)
        if action == "apply":
            typer.echo(document.text(), err=True)
            document = carrying.apply(run, document)
        return document, document.text(), 0

    act(file, as_json, do, looks=True)
