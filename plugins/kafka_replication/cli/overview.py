"""The texts of ``kafka-replication --help`` and ``--version``."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import kafka_replication

HELP = """Replicate Kafka topics in verified batches, exactly once, from a terminal.

Begin with init, which writes a replication's YAML file, then plan and run FILE. One document on stdout, everything else
on stderr. Exit codes: 0 done or nothing to do, 1 something failed, 2 a mistake in the file or in the arguments.
"""
ORDER = (
    "init",
    "check",
    "plan",
    "run",
    "status",
    "overview",
    "watch",
    "exporter",
    "backfill",
    "verify",
    "audit",
    "ledger",
    "failed",
    "approve-gap",
    "reset",
)  # in the order in which a person needs them; the commands for lost records come last


class InOrder(TyperGroup):
    """The commands in the order in which a person needs them."""

    def list_commands(self, ctx: Any) -> list[str]:
        names = super().list_commands(ctx)
        return sorted(names, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"kafka-replication {kafka_replication.__version__}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Show the version and exit.")
]
