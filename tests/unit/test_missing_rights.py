"""Which rights a replication needs, told as findings when the brokers deny them."""

from __future__ import annotations

import pytest

from kafka_replication.config import Replication
from kafka_replication.ledger.entries import POSITIONS
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.rights import ClusterName, Login, Operation, Resource, Right, Side
from kafka_replication.planning import preflight
from kafka_replication.planning.live import plan
from kafka_replication.planning.plan import State
from kafka_replication.planning.snapshot import PartitionOffsets, Problem, Snapshot, Topic

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
    assert found.remedy == denied.command(login.cluster.address, login.principal)
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
        partitions={0: Problem("not authorised", "")},
        replication_factor=0,
        problem=Problem("not authorised", ""),
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
