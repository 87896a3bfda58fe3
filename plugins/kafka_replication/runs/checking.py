"""Everything that a run would refuse or warn of, found out before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kafka_replication.model.errors import BadInput, NotAuthorized, ReplicationError
from kafka_replication.planning import preflight
from kafka_replication.planning.findings import Finding
from kafka_replication.planning.plan import Plan, State
from kafka_replication.runs.run import Request, Run
from kafka_replication.runs.steps import previewing
from kafka_replication.runs.steps.replicating import job
from kafka_replication.spark import reach
from kafka_replication.spark.launcher import Launcher

# The findings about a topic say the same.
_SAID_BY_FINDINGS = frozenset({State.UNFIT, State.UNREADABLE, State.TARGET_MISSING})


def check(run: Run) -> list[Finding]:
    """The findings about connections, clusters, rights, topics, the ledger and Spark. Copies and changes nothing.

    Raises BadInput for connections, Unreachable, Refused.
    """
    run.clusters.resolve(alerts=True)
    broken = list(_unusable_functions(run))
    if broken:  # everything else is checked all the same
        run = run.of(run.replication.model_copy(update={"transform": ()}))
    try:
        plan, found = previewing.preview(run, Request())
    except NotAuthorized as error:
        found = previewing.missing_rights(run) or [Finding("error", run.replication.name, error.what, error.remedy)]
    else:
        found += _refusals(plan)
    functions = run.replication.pipeline.modules
    return preflight.in_order([*broken, *found, *reach.check(run.clusters.spark, functions)])


def _unusable_functions(run: Run) -> Iterator[Finding]:
    try:
        run.check_pipeline()
    except BadInput as error:
        yield Finding("error", run.replication.name, error.what, error.remedy)


def check_spark(run: Run, launcher: Callable[[], Launcher]) -> list[Finding]:
    """Start Spark, and let one worker import what it needs."""
    where = f"Spark {run.clusters.spark.master}"
    try:
        with launcher() as spark:
            end = spark.submit(job(run, []), lambda results: None)
    except ReplicationError as error:
        return [Finding("error", where, error.what, error.remedy)]
    return [Finding("error", where, end.error, end.remedy or "see Spark's log")] if end.error else []


def _refusals(plan: Plan) -> Iterator[Finding]:
    """The partitions that a run would refuse, for reasons that only the ledger or the records show."""
    for refused in plan.refused:
        if refused.state not in _SAID_BY_FINDINGS:
            at = refused.key.source
            yield Finding("error", str(at), refused.what, refused.remedy, topic=at.topic, partition=at.partition)
