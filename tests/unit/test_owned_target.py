"""A target topic belongs to the replication that copies to it, as the ledger says."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_replication.config import Replication
from kafka_replication.ledger.view import LedgerView, Owner
from kafka_replication.planning.live import plan
from kafka_replication.planning.plan import State
from kafka_replication.planning.snapshot import PartitionOffsets, Snapshot, Topic


def topic(name: str, topic_id: str) -> Topic:
    return Topic(name=name, topic_id=topic_id, partitions={0: PartitionOffsets(0, 9, 9)}, replication_factor=3)


def replication(**more: Any) -> Replication:
    document = {
        "name": "second",
        "source": {"connection": "one"},
        "target": {"connection": "other"},
        "topics": {"include": ["orders"]},
        **more,
    }
    return Replication.model_validate(document)


@pytest.mark.parametrize("existing", ["refuse", "append"])
@pytest.mark.parametrize(
    ("owner", "state"),
    [
        (Owner("first", "its-id"), State.NOT_OPENED),
        (Owner("first", "id-of-a-topic-that-was-deleted"), State.OPENING),
    ],
    ids=["the same topic", "re-created since"],
)
def test_a_topic_of_another_replication_is_refused_and_its_owner_named(
    owner: Owner, state: State, existing: str
) -> None:
    snapshot = Snapshot(
        source_cluster="SRC",
        target_cluster="TGT",
        source={"orders": topic("orders", "source-id")},
        target={"orders": topic("orders", "its-id")},
    )
    (planned,) = plan(
        replication(on_existing_target=existing), snapshot, LedgerView(owners={"orders": (owner,)}), {}
    ).partitions
    assert planned.state is state
    assert ("belongs to the replication first" in planned.what) is (state is State.NOT_OPENED)
