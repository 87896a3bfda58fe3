"""Reads and writes the access control lists (ACLs) of a cluster, and what belongs to them: groups and SCRAM users."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported without saying so
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from kafka_replication.kafka import snapshotter, topics
from kafka_replication.kafka.connect_diagnosis import Asked, name_of, translate
from kafka_replication.model.errors import NotAuthorized, Refused, Stalled
from kafka_replication.model.rights import Operation
from kafka_replication.planning.acls import ALLOW, ANY, DENY, EVERYBODY, LITERAL, TOPIC, Acl

AT_ONCE = 1_000  # rules in one request: controllers refuse one that makes more than 10,000 entries
LOOK = 0.1  # seconds between two looks at what was written
_CLUSTER = {"BROKER": "CLUSTER"}  # the client's word, and everybody else's


def check_right(admin: AdminClient, operation: Operation) -> None:
    """Raises NotAuthorized if this client may not do ``operation`` on the cluster (KIP-430), Unreachable."""
    cluster = topics.answer(
        admin,
        "asking for the rights on the cluster",
        lambda seconds: admin.describe_cluster(include_authorized_operations=True, request_timeout=seconds),
    )
    if operation.name not in {allowed.name for allowed in cluster.authorized_operations or ()}:
        asked = Asked.of(admin, cluster=(operation, ""))
        raise translate(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED), "reading or writing ACLs", asked)


def read(admin: AdminClient) -> frozenset[Acl]:
    """All rules of the cluster. Raises NotAuthorized without ``Describe`` on the cluster, Refused without an
    authorizer, Unreachable.

    librdkafka 2.16 drops the error of the brokers in both cases: the list is empty then.
    """
    check_right(admin, Operation.DESCRIBE)
    # None is any name, any principal, any host; the stubs do not know that.
    every: list[Any] = [ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY]
    wanted = AclBindingFilter(*[*every, AclPermissionType.ANY])
    rules = topics.answer(
        admin, "reading the ACLs", lambda seconds: admin.describe_acls(wanted, request_timeout=seconds)
    )
    if not rules:
        check_right(admin, Operation.DESCRIBE)
        _check_authorizer(admin)
    return frozenset(
        Acl(
            resource=_CLUSTER.get(rule.restype.name, rule.restype.name),
            pattern=rule.resource_pattern_type.name,
            name=rule.name,
            principal=rule.principal,
            host=rule.host,
            operation=rule.operation.name,
            permission=rule.permission_type.name,
        )
        for rule in rules
    )


def _check_authorizer(admin: AdminClient) -> None:
    """Raises Refused if there is none: only then everybody may read the brokers' settings."""
    with suppress(NotAuthorized):
        settings = snapshotter.broker_settings(admin)
        if "authorizer.class.name" in settings and not settings["authorizer.class.name"].value:
            raise Refused(
                f"{name_of(Asked.of(admin).settings)}: it has no authorizer, so everybody may do everything there,"
                " and it has no ACLs",
                "set authorizer.class.name on the brokers, or do without ACLs",
            )


def write(admin: AdminClient, create: Collection[Acl], remove: Collection[Acl]) -> None:
    """Create and remove rules, and wait until the brokers show it. At no time is more allowed than before or after.

    Raises NotAuthorized, Refused, Unreachable: what was written until then stays, and the same call does the rest.
    """
    check_right(admin, Operation.ALTER)
    for permission in (DENY, ALLOW):
        _send(admin, [acl for acl in create if acl.permission == permission], admin.create_acls, AclBinding)
    for permission in (ALLOW, DENY):
        _send(admin, [acl for acl in remove if acl.permission == permission], admin.delete_acls, AclBindingFilter)
    until = time.monotonic() + topics.TIMEOUT
    while not (there := read(admin)).issuperset(create) or not there.isdisjoint(remove):
        if time.monotonic() > until:
            what = f"the brokers do not show the ACLs that were written {topics.TIMEOUT:.0f} s ago"
            raise Stalled(f"{name_of(Asked.of(admin).settings)}: {what}", "look at the brokers' log; run it again")
        time.sleep(LOOK)


def _send(admin: AdminClient, acls: Sequence[Acl], request: Callable[..., Any], kind: Callable[..., Any]) -> None:
    for first in range(0, len(acls), AT_ONCE):
        some = {acl: kind(*_terms(acl)) for acl in acls[first : first + AT_ONCE]}
        answers = request(list(some.values()), request_timeout=topics.TIMEOUT)
        for acl, term in some.items():
            try:
                answers[term].result(2 * topics.TIMEOUT)
            except KafkaException as e:
                asked = Asked.of(admin, cluster=(Operation.ALTER, ""))
                raise translate(e.args[0], f"writing the ACL {acl}", asked) from e


def _terms(acl: Acl) -> list[Any]:
    kind, pattern = ResourceType[acl.resource], ResourcePatternType[acl.pattern]
    operation, permission = AclOperation[acl.operation], AclPermissionType[acl.permission]
    return [kind, acl.name, pattern, acl.principal, acl.host, operation, permission]


def denial(topic: str) -> Acl:
    """The rule by which nobody but a super user may write to the topic."""
    return Acl(
        resource=TOPIC,
        pattern=LITERAL,
        name=topic,
        principal=EVERYBODY,
        host=ANY,
        operation=Operation.WRITE.name,
        permission=DENY,
    )


def denied(admin: AdminClient, names: Collection[str]) -> set[str]:
    """Those of these topics that have this rule. Raises NotAuthorized, Refused without an authorizer, Unreachable."""
    rules = read(admin)
    return {name for name in names if denial(name) in rules}


def hiding(admin: AdminClient, beginnings: Iterable[str]) -> set[str]:
    """Those of these beginnings with which the cluster may have topics that this client does not see: brokers deny it
    even a name that nobody has.
    """
    names = {f"{beginning}{uuid.uuid4().hex[:12]}"[:249]: beginning for beginning in beginnings}
    denied = topics.describe(admin, names).denied if names else {}
    return {beginning for name, beginning in names.items() if Operation.DESCRIBE in denied.get(name, ())}


def scram_users(admin: AdminClient) -> Mapping[str, Sequence[tuple[str, int]]]:
    """The mechanisms of each SCRAM user, with their iterations. Raises NotAuthorized, Unreachable.

    Without the right, librdkafka 2.16 ends the whole process when it reads the brokers' answer, so it is asked for
    first.
    """
    check_right(admin, Operation.DESCRIBE)
    ask: Callable[..., Any] = admin.describe_user_scram_credentials  # of all users it is one future
    users = topics.answer(admin, "reading SCRAM users", lambda seconds: ask(request_timeout=seconds))
    return {
        name: [(info.mechanism.name.replace("_", "-"), info.iterations) for info in user.scram_credential_infos]
        for name, user in users.items()
    }
