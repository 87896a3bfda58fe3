"""Which rights a replication needs, and which of them are missing. docs/connections.md lists them for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kafka_replication.config import Replication
from kafka_replication.ledger.entries import POSITIONS, RECEIPTS
from kafka_replication.model.delivery import EXACTLY_ONCE
from kafka_replication.model.errors import NotAuthorized
from kafka_replication.model.keys import consumer_group, transactional_prefix
from kafka_replication.model.rights import ClusterName, Login, Operation, Resource, Right, Side
from kafka_replication.planning import quarantine_topic
from kafka_replication.planning.findings import Finding
from kafka_replication.planning.snapshot import Snapshot, Topic

_SOURCE = (Operation.READ, Operation.DESCRIBE_CONFIGS)
_WRITTEN = (Operation.READ, Operation.WRITE, Operation.DESCRIBE_CONFIGS)


def on_topic(side: Side, name: str, operations: Iterable[Operation]) -> list[Right]:
    return [Right(side=side, operation=operation, resource=Resource.TOPIC, name=name) for operation in operations]


def on_group(side: Side, replication: str) -> Right:
    return Right(side=side, operation=Operation.DESCRIBE, resource=Resource.GROUP, name=consumer_group(replication))


def on_transactions(replication: str) -> Right:
    name = transactional_prefix(replication)
    return Right(side="target", operation=Operation.WRITE, resource=Resource.TRANSACTIONAL_ID, name=name, prefixed=True)


def missing_for_topic(replication: Replication, snapshot: Snapshot, name: str) -> list[Finding]:
    """One finding for each right on this source topic and its target that is missing."""
    target = replication.target_name(name)
    needed = [*on_topic("source", name, _SOURCE), *_on_target(replication, snapshot, name, target)]
    return list(findings(snapshot, needed, name))


def missing_for_side(snapshot: Snapshot, side: Side, name: str) -> list[Finding]:
    """One finding for each right on this existing topic of one side that is missing."""
    return list(findings(snapshot, on_topic(side, name, _SOURCE if side == "source" else _WRITTEN)))


def missing_for_all(replication: Replication, snapshot: Snapshot) -> list[Finding]:
    """One finding for each missing right without which nothing can be copied: on the ledger, groups, transactions."""
    needed = [on_group("source", replication.name), on_group("target", replication.name)]
    if replication.delivery == EXACTLY_ONCE:
        needed.append(on_transactions(replication.name))
    for ledger_topic in (POSITIONS, RECEIPTS):
        needed += on_topic("target", ledger_topic, _on_new(ledger_topic in (snapshot.ledger or {})))
    if quarantine_topic.is_wanted(replication):
        needed += on_topic("target", replication.quarantine_topic, _on_new(snapshot.quarantine is not None))
    return list(findings(snapshot, needed))


def _on_target(replication: Replication, snapshot: Snapshot, name: str, target: str) -> list[Right]:
    there = snapshot.target.get(target)
    operations = _on_new(there is not None or not replication.target_topics.create)
    if there and there.topic_id and _grows(replication, snapshot.source[name], there):
        operations = (*operations, Operation.ALTER)
    return on_topic("target", target, operations)


def _on_new(exists: bool) -> tuple[Operation, ...]:
    return _WRITTEN if exists else (*_WRITTEN, Operation.CREATE)


def _grows(replication: Replication, source: Topic, target: Topic) -> bool:
    return replication.target_topics.partitions == "follow" and len(target.partitions) < len(source.partitions)


def findings(snapshot: Snapshot, needed: Iterable[Right], topic: str | None = None) -> Iterator[Finding]:
    """A finding for each of the ``needed`` rights that the brokers deny. ``topic`` is the source topic they are for."""
    for right in needed:
        if right in snapshot.denied:
            login = snapshot.logins.get(right.side, Login(ClusterName(f"<{right.side}>", right.side)))
            error = NotAuthorized.of(right, login.cluster, login.principal)
            yield Finding("error", str(login.cluster), f"{right} is missing", error.remedy, topic=topic)
