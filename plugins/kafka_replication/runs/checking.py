"""Everything that a run would refuse or warn of, found out before it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kafka_replication.config import Replication
from kafka_replication.kafka import brokers, clients, topics
from kafka_replication.model.choices import KAFKA
from kafka_replication.model.errors import BadInput, NotAuthorized, ReplicationError
from kafka_replication.model.rights import Operation
from kafka_replication.model.trouble import Trouble, in_order
from kafka_replication.planning import broker_versions, rights
from kafka_replication.planning.preflight import loops
from kafka_replication.reporting.table import EngineRow, engine_rows
from kafka_replication.runs import acls, groups, previewing, schemas
from kafka_replication.runs.replicating import job
from kafka_replication.runs.run import Request, Run
from kafka_replication.spark import reach
from kafka_replication.spark.launcher import Launcher

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Checked:
    """The findings, and what a run would copy with which engine; nothing if there is no plan."""

    findings: list[Trouble]
    engines: list[EngineRow] = field(default_factory=list)


def check(run: Run) -> Checked:
    """The findings about connections, clusters, rights, topics, the ledger and Spark. Copies and changes nothing.

    A cluster that does not answer, or lets nobody in, is an error among them; what the other one shows is said all the
    same. Raises BadInput for connections, Refused, and Unreachable if a cluster goes away meanwhile.
    """
    run.clusters.resolve(alerts=True)
    found, engines, as_written = list[Trouble](), list[EngineRow](), run.replication
    try:
        run.check_pipeline()
    except BadInput as error:  # everything else is checked all the same
        found.append(Trouble.of(error, run.replication.name))
        run = run.of(run.replication.model_copy(update={"transform": ()}))
    previewing.check_functions(run)
    if away := run.clusters.away:
        found += previewing.one_side_findings(run, away)
    else:
        try:
            plan, foreseen = previewing.preview(run, Request())
            found += [*foreseen, *previewing.refusals(plan)]
            engines = engine_rows(planned.choice for planned in plan.partitions)
            found += schemas.unknown(run, {planned.key.source for planned in plan.partitions})
        except NotAuthorized as error:
            found += previewing.missing_rights(run) or [Trouble.of(error, run.replication.name)]
        found += [*_loops(run, as_written), *_hidden(run)]
        found += groups.check(run)
        found += acls.findings(run) if "acls" in run.replication.model_fields_set else []
        found += _too_old(run, [trouble.remedy for trouble in found])
    found += reach.check(run.clusters.spark, run.replication.copying, run.replication.pipeline.modules)
    return Checked(in_order(found), engines)


def _loops(run: Run, replication: Replication) -> list[Trouble]:
    """Findings of the ledger on the source, if there is one and it may be read: a run does not need it."""
    try:
        target = run.clusters.target.catalogue.cluster_id()
        return list(loops(replication, target, run.clusters.positions_on_source()))
    except ReplicationError as error:
        log.debug("%s: the ledger on the source was not looked at: %s", run.replication.name, error)
        return []


def _hidden(run: Run) -> Iterator[Trouble]:
    """A warning for each topic that only a pattern selects, and that the source does not list for this client. A run
    knows nothing of it. It is found with the right ``Describe`` on the cluster alone.
    """
    admin, replication, login = run.clusters.source_admin, run.replication, run.clusters.logins["source"]
    if len(replication.topics.named) == len(replication.topics.include):
        return
    stored = {name for name in brokers.stored_topics(admin) if replication.selects(name)}
    for name in sorted(stored - set(topics.names(admin)) - set(replication.topics.named) if stored else ()):
        (right,) = rights.on_topic("source", name, [Operation.READ])
        what = "a pattern of topics.include selects it, and this client may not describe it: it is not copied"
        grant = f"{right.command(login.cluster.address, login.principal)}; or topics.exclude"
        yield Trouble("warning", name, what, grant, topic=name)


def _too_old(run: Run, remedies: Sequence[str]) -> list[Trouble]:
    """Findings about brokers that lack something, as far as they tell it over connections of our own. That they give no
    ids to topics is seen at the first one.
    """
    admins = {clients.login(run.clusters.source).cluster: run.clusters.source_admin}
    if run.replication.target.type == KAFKA:
        target = run.clusters.target_connection
        admins[run.clusters.target.login.cluster] = clients.admin(target, run.replication.timeouts.request)
    found = list[Trouble]()
    for cluster, admin in admins.items():
        newest = brokers.newest_versions(admin, run.replication.timeouts.request)
        found += broker_versions.findings(str(cluster), newest, remedies) if newest is not None else ()
        try:
            topics.states(admin, topics.names(admin)[:1])
        except ReplicationError as error:
            log.debug("%s: no topic's id is known: %s", cluster, error)
            found += [Trouble.of(error, str(cluster))] if error.remedy == broker_versions.GIVES_IDS else []
    return found


def check_spark(run: Run, launcher: Launcher) -> list[Trouble]:
    """Start Spark, and let one worker import what it needs."""
    where = f"Spark {run.clusters.spark.master}"
    try:
        with launcher as spark:
            end = spark.submit(job(run), lambda results: None)
    except ReplicationError as error:
        return [Trouble.of(error, where)]
    return [Trouble("error", where, end.error, end.remedy or "see Spark's log")] if end.error else []
