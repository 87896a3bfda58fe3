"""The rights that a replication needs, and findings about missing ones. docs/connections.md lists them for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from kafka_replication.config import Replication
from kafka_replication.ledger.entries import POSITIONS, RECEIPTS
from kafka_replication.model.choices import EXACTLY_ONCE
from kafka_replication.model.errors import NotAuthorized
from kafka_replication.model.offsets import (
    PartitionKey,
    TopicPartition,
    consumer_group,
    opening_id,
    transactional_prefix,
    verified_id,
)
from kafka_replication.model.rights import ClusterName, Login, Operation, Resource, Right, Side
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning.snapshot import Snapshot
from kafka_replication.planning.topic_settings import may_quarantine

_SOURCE = (Operation.READ, Operation.DESCRIBE_CONFIGS)
_WRITTEN = (Operation.READ, Operation.WRITE, Operation.DESCRIBE_CONFIGS)


def on_topic(side: Side, name: str, operations: Iterable[Operation]) -> list[Right]:
    return [Right(side=side, operation=operation, resource=Resource.TOPIC, name=name) for operation in operations]


def on_group(side: Side, replication: str) -> Right:
    return Right(side=side, operation=Operation.DESCRIBE, resource=Resource.GROUP, name=consumer_group(replication))


def on_transactions(replication: str) -> Right:
    name = transactional_prefix(replication)
    return Right(side="target", operation=Operation.WRITE, resource=Resource.TRANSACTIONAL_ID, name=name, prefixed=True)


def missing_for_topic(replication: Replication, snapshot: Snapshot, name: str) -> list[Trouble]:
    """One finding for each right on this source topic and its target that is missing."""
    target = replication.target_name(name)
    needed = [*on_topic("source", name, _SOURCE), *_on_target(replication, snapshot, name, target)]
    return list(findings(snapshot, needed, name))


def missing_for_side(snapshot: Snapshot, side: Side, name: str) -> list[Trouble]:
    """One finding for each right on this existing topic of one side that is missing."""
    return list(findings(snapshot, on_topic(side, name, _SOURCE if side == "source" else _WRITTEN)))


def to_follow(replication: Replication, snapshot: Snapshot, name: str) -> list[Trouble]:
    """A warning if this client may not change the settings of the target of this source topic, and is to do so. A run
    copies all the same.
    """
    target = snapshot.target.get(replication.target_name(name))
    if replication.target_topics.follow != "apply" or target is None or target.problem is not None:
        return []
    needed = on_topic("target", target.name, [Operation.ALTER_CONFIGS])
    return [replace(finding, severity="warning") for finding in findings(snapshot, needed, name)]


def denied_partitions(replication: Replication, snapshot: Snapshot, name: str) -> Iterator[Trouble]:
    """A finding for each partition of this source topic whose transactional id a rule denies."""
    for number in sorted(snapshot.source[name].partitions):
        key = PartitionKey(replication.name, TopicPartition(name, number), replication.target_name(name))
        for finding in _denied_ids(replication, snapshot, [key.transactional_id]):
            yield replace(finding, partition=number)


def missing_for_all(replication: Replication, snapshot: Snapshot) -> list[Trouble]:
    """One finding for each missing right without which nothing can be copied: on the ledger, groups, transactions."""
    needed = [on_group("source", replication.name), on_group("target", replication.name)]
    if replication.delivery == EXACTLY_ONCE:
        needed.append(on_transactions(replication.name))
    for ledger_topic in (POSITIONS, RECEIPTS):
        needed += on_topic("target", ledger_topic, _on_new(ledger_topic in (snapshot.ledger or {})))
    if may_quarantine(replication):
        needed += on_topic("target", replication.quarantine_topic, _on_new(snapshot.quarantine is not None))
    ids = (opening_id(replication.name), verified_id(replication.name))
    return [*findings(snapshot, needed), *_denied_ids(replication, snapshot, ids)]


def _on_target(replication: Replication, snapshot: Snapshot, name: str, target: str) -> list[Right]:
    there = snapshot.target.get(target)
    operations = _on_new(there is not None or not replication.target_topics.create)
    grows = replication.adds_partitions and there and len(there.partitions) < len(snapshot.source[name].partitions)
    if there and there.topic_id and grows:
        operations = (*operations, Operation.ALTER)
    return on_topic("target", target, operations)


def _on_new(exists: bool) -> tuple[Operation, ...]:
    return _WRITTEN if exists else (*_WRITTEN, Operation.CREATE)


def findings(snapshot: Snapshot, needed: Iterable[Right], topic: str | None = None) -> Iterator[Trouble]:
    """A finding for each of the ``needed`` rights that the brokers deny. ``topic`` is the source topic of the need."""
    for right in needed:
        if right in snapshot.denied:
            login = _login(snapshot, right.side)
            error = NotAuthorized.of(right, login.cluster, login.principal)
            seen = snapshot.deny_rules.get(right.side)
            granted = error.remedy if seen is None else right.command(login.cluster.address, login.principal)
            missing = Trouble("error", str(login.cluster), f"{right} is missing", granted)
            yield replace(_by_rule(snapshot, right) or missing, topic=topic)


def _denied_ids(replication: Replication, snapshot: Snapshot, ids: Iterable[str]) -> Iterator[Trouble]:
    """A finding for each transactional id that a rule denies. A request about one id does not show the others."""
    if replication.delivery != EXACTLY_ONCE or on_transactions(replication.name) in snapshot.denied:
        return
    for name in ids:
        right = Right(side="target", operation=Operation.WRITE, resource=Resource.TRANSACTIONAL_ID, name=name)
        if finding := _by_rule(snapshot, right, host="*"):
            yield finding


def _by_rule(snapshot: Snapshot, right: Right, host: str | None = None) -> Trouble | None:
    """The finding if a visible rule denies the right. ``host`` limits it to rules for this host."""
    login = _login(snapshot, right.side)
    for rule in sorted(snapshot.deny_rules.get(right.side, ())):
        if rule.forbids(right, login.principal) and host in (None, rule.host):
            what = f"{right} is denied by a rule, which counts more than what is granted: {rule}"
            return Trouble("error", str(login.cluster), what, rule.command(login.cluster.address))
    return None


def _login(snapshot: Snapshot, side: Side) -> Login:
    return snapshot.logins.get(side, Login(ClusterName(f"<{side}>", side)))
