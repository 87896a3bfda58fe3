"""Which rights a replication needs, told as findings when the brokers deny them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_replication.config import Replication
from kafka_replication.ledger.entries import POSITIONS
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.rights import ClusterName, DenyRule, Login, Operation, Resource, Right, Side
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning import preflight, rights
from kafka_replication.planning.live import plan
from kafka_replication.planning.plan import State
from kafka_replication.planning.snapshot import PartitionOffsets, Snapshot, Topic

REPLICATION = Replication.model_validate(
    {
        "name": "orders-dr",
        "source": {"connection": "one"},
        "target": {"connection": "other"},
        "topics": {"include": ["orders"], "rename": "dr.{topic}"},
    }
)
LOGINS: dict[Side, Login] = {
    "source": Login(ClusterName("one:9092", "source", "one"), "User:reader"),
    "target": Login(ClusterName("other:9092", "target", "other"), "User:writer"),
}


def right(
    side: Side, operation: Operation, name: str, kind: Resource = Resource.TOPIC, *, prefixed: bool = False
) -> Right:
    return Right(side=side, operation=operation, resource=kind, name=name, prefixed=prefixed)


def topic(name: str, partitions: int = 1) -> Topic:
    offsets = dict.fromkeys(range(partitions), PartitionOffsets(0, 9, 9))
    return Topic(name=name, topic_id=f"id-{name}", partitions=offsets, replication_factor=3)


def snapshot(*denied: Right, target: Topic | None = None, partitions: int = 1) -> Snapshot:
    return Snapshot(
        source_cluster="SRC",
        target_cluster="TGT",
        source={"orders": topic("orders", partitions)},
        target={"dr.orders": target} if target else {},
        ledger={},
        denied=frozenset(denied),
        logins=LOGINS,
    )


def missing(*denied: Right, **more: object) -> list[str]:
    found = preflight.check(REPLICATION, snapshot(*denied, **more))  # type: ignore[arg-type]
    return [f"{one.where}: {one.what}" for one in found if one.what.endswith("is missing")]


@pytest.mark.parametrize(
    ("denied", "of_one_topic"),
    [
        (right("source", Operation.READ, "orders"), True),
        (right("target", Operation.CREATE, "dr.orders"), True),
        (right("target", Operation.WRITE, POSITIONS), False),
        (right("source", Operation.DESCRIBE, "kafka-replication/orders-dr", Resource.GROUP), False),
        (
            right("target", Operation.WRITE, "kafka-replication/orders-dr/", Resource.TRANSACTIONAL_ID, prefixed=True),
            False,
        ),
    ],
)
def test_a_denied_right_is_one_finding_with_its_command(denied: Right, of_one_topic: bool) -> None:
    login = LOGINS[denied.side]
    (found,) = [one for one in preflight.check(REPLICATION, snapshot(denied)) if one.what.endswith("is missing")]
    assert (found.where, found.what) == (str(login.cluster), f"{denied} is missing")
    assert found.remedy == (
        f"{denied.command(login.cluster.address, login.principal)}; if it is granted already, a rule that denies it has"
        f" to be removed: kafka-acls.sh --bootstrap-server {login.cluster.address} --command-config admin.properties --list"
    )
    assert found.stops_the_run is not of_one_topic, "what concerns one topic stops no other"


def test_what_is_not_needed_is_not_asked_for() -> None:
    assert missing(right("source", Operation.WRITE, "orders"), right("target", Operation.READ, "orders")) == []
    assert missing(right("target", Operation.CREATE, "dr.orders"), target=topic("dr.orders")) == []


def test_partitions_are_added_only_with_alter() -> None:
    alter, target = right("target", Operation.ALTER, "dr.orders"), topic("dr.orders")
    assert missing(alter, target=target) == []
    assert missing(alter, target=target, partitions=2) == [f"{LOGINS['target'].cluster}: {alter} is missing"]


def test_a_topic_that_may_not_be_read_is_refused_for_that_and_not_called_gone() -> None:
    hidden = Topic(
        name="orders",
        topic_id="",
        partitions={0: Trouble("error", "", "not authorised", "")},
        replication_factor=0,
        problem=Trouble("error", "", "not authorised", ""),
    )
    seen = snapshot(right("source", Operation.READ, "orders"))
    seen = Snapshot(
        source_cluster="SRC",
        target_cluster="TGT",
        source={"orders": hidden},
        target={},
        denied=seen.denied,
        logins=LOGINS,
    )
    (planned,) = plan(REPLICATION, seen, LedgerView(), {}).partitions
    assert planned.state is State.UNFIT
    assert "Read on topic orders is missing" in planned.what
    assert "exclude" not in planned.remedy and "--operation Read --topic orders" in planned.remedy


def rule(operation: str, resource: Resource, name: str, **more: Any) -> DenyRule:
    given = {"side": "target", "principal": "User:writer", "host": "*", **more}
    return DenyRule(operation=operation, resource=resource, name=name, **given)


def ruled(*rules: DenyRule, denied: tuple[Right, ...] = (), partitions: int = 1) -> list[Trouble]:
    """The findings about rights if the target shows these rules."""
    seen = replace(snapshot(*denied, partitions=partitions), deny_rules={"target": frozenset(rules)})
    return [one for one in preflight.check(REPLICATION, seen) if " on t" in one.what and one.severity == "error"]


WRITE = right("target", Operation.WRITE, "dr.orders")


@pytest.mark.parametrize(
    "covering",
    [
        rule("Write", Resource.TOPIC, "dr.orders"),
        rule("All", Resource.TOPIC, "dr.orders", principal="User:*"),
        rule("Describe", Resource.TOPIC, "dr.", prefixed=True),
        rule("Write", Resource.TOPIC, "*", host="10.0.0.7"),
    ],
)
def test_a_right_that_a_rule_denies_is_not_called_missing(covering: DenyRule) -> None:
    (found,) = ruled(covering, denied=(WRITE,))
    assert found.what == (
        f"Write on topic dr.orders is denied by a rule, which counts more than what is granted: {covering}"
    )
    assert found.remedy == covering.command("other:9092") and "--remove --deny-principal" in found.remedy
    assert (found.topic, found.stops_the_run) == ("orders", False)


@pytest.mark.parametrize(
    "other",
    [
        rule("Write", Resource.TOPIC, "dr.orders", principal="User:reader"),
        rule("Write", Resource.TOPIC, "dr.order"),
        rule("Read", Resource.TOPIC, "dr.orders"),
        rule("Write", Resource.GROUP, "dr.orders"),
        rule("Write", Resource.TOPIC, "dr.orders", side="source"),
    ],
)
def test_a_rule_about_something_else_leaves_the_right_missing(other: DenyRule) -> None:
    (found,) = ruled(other, denied=(WRITE,))
    assert found.what == "Write on topic dr.orders is missing"
    assert found.remedy == WRITE.command("other:9092", "User:writer"), "no rule denies it: this cluster shows its rules"


def test_a_rule_on_one_transactional_id_is_foreseen_for_its_partition() -> None:
    one = rule("Write", Resource.TRANSACTIONAL_ID, "kafka-replication/orders-dr/orders/1/dr.orders")
    (found,) = ruled(one, partitions=3)
    assert (found.topic, found.partition, found.stops_the_run) == ("orders", 1, False)
    assert found.what.startswith(f"Write on transactional id {one.name} is denied by a rule")
    assert ruled(rule("Write", Resource.TRANSACTIONAL_ID, "kafka-replication/orders-dr/gone/1/dr.gone")) == []
    assert ruled(replace(one, host="10.0.0.7"), partitions=3) == [], "nobody knows which host this client is"


def test_a_rule_on_all_transactional_ids_is_one_finding() -> None:
    (found,) = ruled(
        rule("All", Resource.TRANSACTIONAL_ID, "kafka-replication/", prefixed=True),
        denied=(rights.on_transactions("orders-dr"),),
    )
    assert found.stops_the_run and "whose name begins with kafka-replication/orders-dr/ is denied" in found.what
    (found,) = ruled(rule("Write", Resource.TRANSACTIONAL_ID, "kafka-replication/orders-dr/verified"))
    assert found.stops_the_run


def test_a_replication_without_transactions_needs_no_transactional_id() -> None:
    without = Replication.model_validate(REPLICATION.model_dump() | {"delivery": "at_least_once"})
    every = rule("All", Resource.TRANSACTIONAL_ID, "*")
    seen = replace(snapshot(), deny_rules={"target": frozenset({every})})
    assert [one for one in preflight.check(without, seen) if "transactional" in one.what] == []
