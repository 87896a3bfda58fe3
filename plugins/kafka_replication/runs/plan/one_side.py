"""Findings about one cluster while the other one does not answer. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kafka_replication.kafka.metadata import snapshotter
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import NotAuthorized, ReplicationError
from kafka_replication.model.rights import Side
from kafka_replication.planning.checks import preflight
from kafka_replication.planning.findings import Finding
from kafka_replication.planning.live import own, plan, without_source
from kafka_replication.planning.snapshot import Problem
from kafka_replication.runs.plan import previewing
from kafka_replication.runs.plan.permission_checks import ask
from kafka_replication.runs.run import Run


def findings(run: Run, away: Mapping[Side, ReplicationError]) -> list[Finding]:
    """Each side that is ``away`` as an error, and the findings about the other one, its ledger and the store.

    Nothing is said that needs both sides, such as what would be copied.
    """
    found = [_error(run, error) for error in away.values()]
    try:
        if "source" not in away:
            found += _of_source(run)
        if "target" not in away:
            found += _of_target(run, Problem.of(away["source"]))
    except ReplicationError as error:
        found.append(_error(run, error))
    return preflight.in_order(found)


def _error(run: Run, error: ReplicationError) -> Finding:
    return Finding("error", run.replication.name, error.what, error.remedy)


def _of_source(run: Run) -> list[Finding]:
    known = {key.source for key in run.store.watermarks(run.replication.name)}
    snapshot = snapshotter.take_source(run.replication, run.clusters.source_admin, known)
    snapshot = replace(snapshot, logins=run.clusters.logins)
    answers = ask(run, snapshot, transactions=False, sides=["source"])
    return preflight.check_side(run.replication, answers.added_to(snapshot), "source", known=bool(known))


def _of_target(run: Run, problem: Problem) -> list[Finding]:
    """The ledger says which topics were copied; of the others only those are known that the file names."""
    try:
        view = run.view()
    except NotAuthorized:  # the rights on the ledger are among the findings
        view = LedgerView()
    replication, copied = run.replication, {key.target_topic for key in own(run.replication, view).positions}
    named = {name for name in replication.topics.named if replication.selects(name)}
    wanted = copied | {replication.target_name(name) for name in named if not replication.target_problem(name)}
    snapshot = run.clusters.target.catalogue.look(replication, wanted)
    snapshot = replace(snapshot, logins=run.clusters.logins)
    answers = ask(run, snapshot, transactions=True, sides=["target"])
    snapshot = answers.added_to(snapshot)
    found = preflight.check_side(replication, snapshot, "target", known=bool(copied))
    of_ledger = without_source(replication, view, problem)
    snapshot = replace(snapshot, source=of_ledger.source, source_cluster=of_ledger.source_cluster)
    planned = plan(replication, snapshot, view, run.watermarks(view))
    return [*found, *answers.findings, *previewing.refusals(planned)]
