"""Previews of a run: what it would do, and what it would refuse. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kafka_replication.kafka.write import partitioner
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import NotAuthorized, ReplicationError
from kafka_replication.model.partitioning import Partitioning
from kafka_replication.planning.changes import changes
from kafka_replication.planning.checks import preflight, rights
from kafka_replication.planning.findings import Finding
from kafka_replication.planning.live import refuse_occupied
from kafka_replication.planning.plan import PartitionPlan, Plan, State
from kafka_replication.planning.snapshot import Problem, Snapshot
from kafka_replication.runs.plan import foreseeing
from kafka_replication.runs.plan.demand import Live
from kafka_replication.runs.plan.engines import with_engines
from kafka_replication.runs.plan.existing_records import already_there
from kafka_replication.runs.plan.looking import asked, look
from kafka_replication.runs.plan.permission_checks import ask
from kafka_replication.runs.plan.receipt_check import defended
from kafka_replication.runs.run import Request, Run
from kafka_replication.targets.occupied import TargetRecords

# The findings about a topic say the same.
_SAID_BY_FINDINGS = frozenset({State.UNFIT, State.UNREADABLE, State.TARGET_MISSING})


def preview(run: Run, request: Request) -> tuple[Plan, list[Finding]]:
    """The plan of a run now, and the findings about both clusters. Creates, opens and stores nothing.

    The target is asked for a producer id under an id of its own, so no run at work is fenced. Raises NotAuthorized if
    the ledger may not be read; `missing_rights` then tells all.
    """
    check_functions(run)
    run.clusters.connect()
    demand = Live(request)
    world = asked(run, look(run, demand, opens=False), transactions=True)
    snapshot, view = world.snapshot, world.view
    found = preflight.check(run.replication, snapshot, known=bool(view.positions))
    planned = defended(run, demand.plan(run, world, {})).plan
    planned = with_engines(run, replace(planned, changes=changes(planned, view, run.transform)), snapshot)
    found += [*already_there(run, planned), *foreseeing.warnings(run, planned, snapshot, view)]
    return without_occupied(run, planned, snapshot, view), preflight.in_order([*found, *world.answers.findings])


def check_functions(run: Run) -> None:
    """Raise BadInput for a function of the file that cannot be imported here, before a cluster is asked."""
    run.check_pipeline()
    partitioner.check(run.replication.placing)


def refusals(planned: Plan) -> Iterator[Finding]:
    """The partitions that a run would refuse, for reasons that only the ledger or the records show."""
    for refused in planned.refused:
        if refused.state not in _SAID_BY_FINDINGS:
            at = refused.key.source
            yield Finding("error", str(at), refused.what, refused.remedy, topic=at.topic, partition=at.partition)


def missing_rights(run: Run) -> list[Finding]:
    """Every right that is missing, as far as the brokers tell, also if the ledger may not be read."""
    snapshot = run.snapshot(LedgerView())
    snapshot = ask(run, snapshot, transactions=True).added_to(snapshot)
    for_topics = (rights.missing_for_topic(run.replication, snapshot, name) for name in snapshot.source)
    return [*(right for found in for_topics for right in found), *rights.missing_for_all(run.replication, snapshot)]


def with_missing_rights(run: Run, error: NotAuthorized) -> NotAuthorized:
    """The error with all rights that are missing now. A broker names only the first one, and not what needs it."""
    try:
        found = list(dict.fromkeys((f"{right.where}: {right.what}", right.remedy) for right in missing_rights(run)))
    except ReplicationError:
        return error
    if not found:
        return error
    return NotAuthorized("; ".join(what for what, _ in found), "; ".join(remedy for _, remedy in found))


def without_occupied(run: Run, planned: Plan, snapshot: Snapshot, view: LedgerView) -> Plan:
    """The plan in which new partitions are refused whose target has records of others. Creates and opens nothing."""
    if run.replication.on_existing_target != "refuse":
        return planned
    placing = run.replication.placing
    new = {
        one.key: one for one in planned.partitions if one.state is State.OPENING and _has_log(one, snapshot, placing)
    }
    if not new:
        return planned
    records = TargetRecords(run.clusters.target, placing)
    wait = run.deadline.within(run.replication.timeouts.request)
    occupied, unknown = records.occupied_each(new, wait, view.positions)
    problems = {key: Problem.of(error) for key, error in unknown.items()}
    refused = refuse_occupied(new.values(), occupied, problems)
    return replace(planned, partitions=tuple(refused.get(one.key, one) for one in planned.partitions))


def _has_log(planned: PartitionPlan, snapshot: Snapshot, placing: Partitioning) -> bool:
    target = snapshot.target.get(planned.key.target_topic)
    if target is None:
        return False
    there = (target.readable.get(number) for number in placing.targets(planned.key.source.partition, target.partitions))
    return any(log is not None and log.log_start < log.high_watermark for log in there)
