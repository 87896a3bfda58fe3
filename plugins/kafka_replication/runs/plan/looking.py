"""The first half of a plan step, which changes nothing: look at both clusters and the ledger, and ask for rights."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

from kafka_replication.ledger.view import LedgerView
from kafka_replication.planning.checks import preflight
from kafka_replication.planning.findings import Finding, merged
from kafka_replication.planning.live import own
from kafka_replication.runs.plan.demand import Demand, World
from kafka_replication.runs.plan.permission_checks import Answers, ask
from kafka_replication.runs.run import Request, Run

log = logging.getLogger(__name__)
NOT_ASKED = Answers()


def look(run: Run, demand: Demand, answers: Answers = NOT_ASKED, *, opens: bool = True) -> World:
    """The ledger and a snapshot of the demanded topics, with the ``answers`` that were given before.

    ``opens``: for a run, which opens new partitions and stores its plan; see `to_look_at`. A preview does neither.
    """
    ends = run.clusters.ledger.receipt_ends() if opens else {}
    view = run.view()
    snapshot = run.snapshot(view, to_look_at(run, view, demand) if opens else demand.request)
    return World(snapshot=answers.added_to(snapshot), view=view, receipt_ends=ends, answers=answers)


def to_look_at(run: Run, view: LedgerView, demand: Demand) -> Request:
    """The topics that a run has to see which opens new partitions.

    The first run has all topics, because it resolves the start offsets of all partitions: a topic left out would count
    as added later.
    """
    widens = demand.opens_live and not own(run.replication, view).begun
    return replace(demand.request, topics=()) if widens else demand.request


def asked(run: Run, world: World, *, transactions: bool) -> World:
    """The world with the rights that are denied; see `ask`."""
    answers = ask(run, world.snapshot, transactions=transactions)
    return replace(world, snapshot=answers.added_to(world.snapshot), answers=answers)


def raise_findings(run: Run, demand: Demand, world: World) -> None:
    """Log every finding. Raises PreflightFailed if one of them stops the run, or if the run does all of the demanded
    topics or nothing, and one of them has an error. What concerns one partition is raised when it is planned.
    """
    checked = preflight.check(run.replication, world.snapshot, known=bool(world.view.positions))
    found = [*checked, *world.answers.findings]
    log_findings(found)

    def stops(finding: Finding) -> bool:
        demanded = not demand.request.topics or finding.topic in demand.request.topics
        return finding.stops_the_run or (demand.whole and demanded and finding.partition is None)

    preflight.raise_errors(filter(stops, found))


def log_findings(findings: Iterable[Finding]) -> None:
    for finding in merged(findings):
        finding.log_to(log)
