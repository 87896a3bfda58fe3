"""Carries the rights on copied topics and groups over to the target: looks at both clusters, then acts."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace

from kafka_replication.config import Replication
from kafka_replication.kafka import AdminClient, acls, clients, groups, topics
from kafka_replication.model.choices import KAFKA
from kafka_replication.model.errors import BadInput, Refused
from kafka_replication.model.offsets import PREFIX
from kafka_replication.model.rights import Operation, Side
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning.acls import (
    ALLOW,
    ANY,
    EVERYBODY,
    GROUP,
    LITERAL,
    PREFIXED,
    TOPIC,
    Acl,
    AclPlan,
    Copied,
    plan,
)
from kafka_replication.reporting.acls import AclsDocument, ScramRow
from kafka_replication.runs.run import Run


def look(run: Run) -> AclsDocument:
    """The document of what is to be done. Changes nothing.

    Raises BadInput for a target that is not Kafka, NotAuthorized without ``Describe`` on a cluster, Refused for a
    cluster without an authorizer, Unreachable.
    """
    run.clusters.connect()
    source, target = run.clusters.source_admin, _target(run)
    there, here = acls.read(source), acls.read(target)
    copied = {
        TOPIC: _topics(run.replication, source, target, there, here),
        GROUP: _groups(run.replication, source, target, there, here),
    }
    # A person may look with a login of his own. The rights of the runs, which docs/connections.md lists, name ours.
    own = {rule.principal for rule in there | here if rule.permission == ALLOW and rule.name.startswith(PREFIX)}
    own |= {login.principal for login in run.clusters.logins.values()}
    made = plan(there, here, copied, run.replication.acls, own - {EVERYBODY})
    return AclsDocument(
        replication=run.replication.name,
        applied=False,
        plan=made,
        scram_users=tuple(_scram_users(run, made, source, target)),
        quotas=f"{_configs(run, 'source')} --describe --entity-type users",
    )


def apply(run: Run, looked: AclsDocument) -> AclsDocument:
    """Do it, and return when the brokers show it. Raises NotAuthorized, Refused, Unreachable: what was done stays."""
    if looked.plan.to_create or looked.plan.to_remove:
        acls.write(_target(run), looked.plan.to_create, looked.plan.to_remove)
    return replace(looked, applied=True)


def findings(run: Run) -> list[Trouble]:
    """A warning for each side on which `acls apply` would be refused; a run is not. Raises Unreachable."""
    return [
        *_refused(lambda: run.clusters.source_admin, Operation.DESCRIBE),
        *_refused(lambda: _target(run), Operation.ALTER),
    ]


def _refused(admin: Callable[[], AdminClient], operation: Operation) -> Iterator[Trouble]:
    try:
        acls.check_right(admin(), operation)
        acls.read(admin())
    except (BadInput, Refused) as error:
        yield Trouble("warning", "kafka-replication acls", error.what, error.remedy)


def _target(run: Run) -> AdminClient:
    if run.replication.target.type != KAFKA:
        raise BadInput(f"a target of type {run.replication.target.type} has no ACLs", "remove the section acls")
    return clients.shared_admin(run.clusters.target_connection)


def _groups(
    replication: Replication, source: AdminClient, target: AdminClient, there: frozenset[Acl], here: frozenset[Acl]
) -> Copied:
    """The groups that the file selects, whether they have committed something or not. In one cluster none is a copy."""
    selects = replication.groups.selects
    if not replication.groups.include or topics.cluster_id(source) == topics.cluster_id(target):
        return Copied(names={}, rename=str)
    names = {name: name for name in {*groups.kinds(source), *_named(there, GROUP)} if selects(name)}
    others = {name for name in {*groups.kinds(target), *_named(here, GROUP)} if not selects(name)}
    return Copied(names=names, rename=str, others=others)


def _topics(
    replication: Replication, source: AdminClient, target: AdminClient, there: frozenset[Acl], here: frozenset[Acl]
) -> Copied:
    copied = {
        name: replication.target_name(name)
        for name in topics.names(source)
        if replication.selects(name) and not replication.target_problem(name)
    }
    others = {*topics.names(target), *_named(here, TOPIC)} - set(copied.values())
    asked = {replication.target_name(name) for name in _named(there, TOPIC, PREFIXED)} | _named(here, TOPIC, PREFIXED)
    asked = {beginning for beginning in asked if any(name.startswith(beginning) for name in copied.values())}
    return Copied(
        names=copied,
        rename=replication.target_name,
        others=others,
        hiding=acls.hiding(target, asked),
        selects=replication.selects,
    )


def _named(rules: frozenset[Acl], kind: str, pattern: str = LITERAL) -> set[str]:
    """Names in rules, which may exist although no list shows them; or beginnings of names."""
    return {acl.name for acl in rules if (acl.resource, acl.pattern) == (kind, pattern) and acl.name != ANY}


def _configs(run: Run, side: Side) -> str:
    address = run.clusters.logins[side].cluster.address
    return f"kafka-configs.sh --bootstrap-server {address} --command-config admin.properties"


def _scram_users(run: Run, made: AclPlan, source: AdminClient, target: AdminClient) -> Iterator[ScramRow]:
    pairs = [(principal.partition(":"), name.partition(":")) for principal, name in made.principals.items()]
    users = [(user, name) for (kind, _, user), (other, _, name) in pairs if kind == other == "User" and user != "*"]
    credentials, on_target = (acls.scram_users(source), acls.scram_users(target)) if users else ({}, {})
    for user, name in users:
        for mechanism, iterations in credentials.get(user, ()):
            secret = shlex.quote(f"{mechanism}=[iterations={iterations},password=...]")
            yield ScramRow(
                user=user,
                target_user=name,
                mechanism=mechanism,
                iterations=iterations,
                on_target=mechanism in dict(on_target.get(name, ())),
                command=f"{_configs(run, 'target')} --alter --entity-type users --entity-name {shlex.quote(name)}"
                f" --add-config {secret}",
            )
