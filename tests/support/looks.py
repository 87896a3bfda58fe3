"""How often looks at a target ask for the ledger, whatever the kind of the target is."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import closing

import pytest

from kafka_replication.config import Replication
from kafka_replication.ledger.entries import Ids, Position
from kafka_replication.model.offsets import PartitionKey, TopicPartition
from kafka_replication.targets.port import Target
from kafka_replication.targets.start_offsets import StartOffsets
from tests.conformance.ground import Ground, opened

OTHERS = 3  # replications that have heads of their own beside it


def _begun(ground: Ground, topics: int, partitions: int) -> tuple[Target, list[TopicPartition]]:
    """The target of a new replication that has opened all partitions of its topics."""
    name = f"looks-{uuid.uuid4().hex[:8]}"
    names = [f"{name}-{number}" for number in range(topics)]
    sides = {"source": {"connection": "a"}, "target": {"connection": "b"}}
    target = opened(ground, name)
    target.ledger.ensure(Replication.model_validate({"name": name, **sides, "topics": {"include": names}}))
    positions = dict[PartitionKey, Position]()
    for topic in names:
        ground.create(topic, partitions)
        ids = Ids("source", "source-topic", ground.id_of(topic))
        for number in range(partitions):
            key = PartitionKey(name, TopicPartition(topic, number), topic)
            positions[key] = Position(generation=1, ids=ids, start=0, next_offset=0)
    with closing(StartOffsets(name, target)) as opening:
        opening.fence()
        opening.commit(positions, {})
    return target, [key.target for key in positions]


def assert_looks_ask_once(
    ground: Ground, client: type, method: str, asks: Callable[..., bool], patching: pytest.MonkeyPatch
) -> None:
    """Each look at all partitions of a replication asks as often for the ledger as a look at one. ``asks`` says of the
    arguments of a ``method`` of the ``client`` that it does.
    """
    for _ in range(OTHERS):
        _begun(ground, 1, 1)
    real, asked = getattr(client, method), list[object]()

    def counting(self: object, *args: object, **more: object) -> object:
        asked.extend([args] if asks(*args) else [])
        return real(self, *args, **more)

    def requests(topics: int, partitions: int) -> list[int]:
        target, all_ = _begun(ground, topics, partitions)
        names, counts = {at.topic for at in all_}, list[int]()
        with patching.context() as counted:
            counted.setattr(client, method, counting)
            for look in (
                lambda: target.catalogue.topics(names),
                lambda: target.standing.ends(all_),
                lambda: target.standing.logs(all_),
            ):
                asked.clear()
                assert look()
                counts.append(len(asked))
        assert target.standing.ends(all_) == (dict.fromkeys(all_, 0), {})
        return counts

    one = requests(1, 1)
    assert all(one), "each look asks for the own head"
    assert (many := requests(2, 15)) == one, f"{many} requests of the looks at 30 partitions, {one} at one"
