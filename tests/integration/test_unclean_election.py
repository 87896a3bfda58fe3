"""A source of three brokers that elects a replica which had missed records: what was copied is no longer what it holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from stack.kafka_cluster import KafkaCluster
from tests.support.checker import read
from tests.support.clusters import Brokers
from tests.support.scenario import Cluster, Scenario, numbered, only
from tests.support.waiting import wait_until

KEPT, LOST = 40, 60
LEADER, FOLLOWER = 1, 2  # the third broker keeps the controllers' quorum while one of these is dead


@pytest.fixture
def scene(target3: KafkaCluster, source_cluster: Brokers, tmp_path: Path) -> Iterator[Scenario]:
    """From three brokers to one."""
    made = Scenario(Cluster(target3.bootstrap), Cluster(source_cluster.bootstrap), tmp_path)
    yield made
    made.store.close()


def replicas_in_sync(scene: Scenario) -> list[int]:
    partitions = scene.source.admin.list_topics(scene.topic, timeout=30).topics[scene.topic].partitions
    return sorted(partitions[0].isrs) if partitions else []  # a broker that just started may not know the topic yet


def holds(scene: Scenario, records: int) -> bool:
    return len(read(scene.source.bootstrap, scene.topic, 0)) == records


def elected(scene: Scenario, brokers: KafkaCluster) -> Scenario:
    """KEPT + LOST records are copied; then the source has the first KEPT of them.

    A broker that was killed may have lost more than that by itself: then the stage is set anew.
    """
    for attempt in range(3):
        folder = scene.folder / str(attempt)
        folder.mkdir()
        stage = Scenario(scene.source, scene.target, folder)
        elect_the_one_that_missed_some(stage, brokers)
        # A broker that has just become the leader shows its records once it knows its high watermark again.
        with suppress(AssertionError):
            wait_until(partial(holds, stage, KEPT), 30)
            return stage
    pytest.fail("no election lost what it was to lose")


def elect_the_one_that_missed_some(scene: Scenario, brokers: KafkaCluster) -> None:
    leader, follower = brokers.broker(LEADER - 1), brokers.broker(FOLLOWER - 1)
    config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    scene.source.create(scene.topic, config=config, assignment=[[LEADER, FOLLOWER]])
    wait_until(lambda: replicas_in_sync(scene) == [LEADER, FOLLOWER])
    scene.source.produce(scene.topic, numbered(KEPT))
    follower.kill()
    wait_until(lambda: replicas_in_sync(scene) == [LEADER])
    scene.source.produce(scene.topic, numbered(LOST, KEPT))
    assert only(scene.run()).copied == KEPT + LOST
    leader.kill()
    follower.start()
    wait_until(lambda: replicas_in_sync(scene) == [FOLLOWER])
    leader.start()
    wait_until(lambda: replicas_in_sync(scene) == [LEADER, FOLLOWER])


@pytest.mark.slow  # a row of the faults goes back as far; `test_plan_refusals.py` has what is said
@pytest.mark.parametrize(
    ("written_since", "named"),
    [
        (0, f"the source ends at {KEPT}, {LOST} offsets below the position {KEPT + LOST}"),
        (LOST + 20, "truncated below offset 100"),
    ],
    ids=("shorter than what was copied", "as long again, with other records"),
)
def test_it_is_named_and_nothing_is_copied(
    scene: Scenario, target3: KafkaCluster, written_since: int, named: str
) -> None:
    scene = elected(scene, target3)
    scene.source.produce(scene.topic, numbered(written_since, 1_000))
    report = scene.run()
    assert report.outcome == "failed" and named in (only(report).error or ""), report.table()
    assert scene.watermark() == KEPT + LOST
    assert len(read(scene.target.bootstrap, scene.topic, 0)) == KEPT + LOST
