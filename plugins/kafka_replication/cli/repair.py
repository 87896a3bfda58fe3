"""``ledger --repair``: show what the receipts prove, ask, and write it."""

from __future__ import annotations

import sys
from typing import Any

import typer

from kafka_replication import documents
from kafka_replication.runs import steps
from kafka_replication.runs.leasing import EVERYTHING, leased
from kafka_replication.runs.repair import repair
from kafka_replication.runs.run import Run

NOTHING = "nothing to repair: the entries do not contradict each other"


def repaired(run: Run, *, yes: bool) -> tuple[Any, str, int]:
    """Repair contradicting entries of the ledger. The exit code is 1 if a proposed repair is not written."""
    with leased(run, EVERYTHING) as leased_run:
        steps.fence_stale_producers(leased_run)
        proposals = repair.proposals(leased_run)
        agreed = bool(proposals) and (yes or _agreed("\n".join(map(str, proposals))))
        if agreed:
            repair.carry_out(leased_run, proposals)
    rows = [proposal.as_json() for proposal in proposals]
    document: documents.RepairDocument = {"replication": run.replication.name, "written": agreed, "partitions": rows}
    if not proposals:
        return document, NOTHING, 0
    end = "written" if agreed else "nothing was changed; add --yes to write it"
    return document, "\n".join([*map(str, proposals), end]), int(not agreed)


def _agreed(text: str) -> bool:
    """True if the person at the terminal agrees. False without a terminal."""
    if not sys.stdin.isatty():
        return False
    typer.echo(text, err=True)
    return typer.confirm("write these positions?", default=False, err=True)
