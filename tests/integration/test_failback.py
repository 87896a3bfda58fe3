"""There and back: the source is given up, others write to the target, and everything comes back to the old topics once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_replication.kafka import groups as kafka_groups
from kafka_replication.kafka.groups import Committed
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.reporting.turning import TurnDocument
from kafka_replication.runs import cutover, failback, failover
from kafka_replication.runs.cutover import Wishes
from kafka_replication.runs.run import Run, open_run
from tests.support.checker import read
from tests.support.jobs import InProcess
from tests.support.scenario import Cluster, Scenario, numbered

WISHES = Wishes(by="ann", reason="a drill", quiet=0.5, sample=-1)


@pytest.fixture
def back(scene: Scenario, tmp_path: Path) -> Iterator[Scenario]:
    """The other direction, with a ledger on the other cluster."""
    folder = tmp_path / "back"
    folder.mkdir()
    made = Scenario(scene.target, scene.source, folder)
    made.topic = scene.topic
    made.settings["topics"] = {"include": [made.topic]}
    yield made
    made.store.close()


def opened(scene: Scenario, run_id: str = "turn") -> Run:
    return open_run(scene.replication(), scene.connections, scene.store, run_id)


def cut_over(scene: Scenario, **wishes: Any) -> TurnDocument:
    return cutover.cutover(opened(scene), Wishes(**{"by": "ann", "quiet": 0.5, **wishes}), InProcess())


def gone_back(scene: Scenario, back: Scenario, run_id: str = "turn") -> TurnDocument:
    return failback.failback(opened(scene, run_id), opened(back, run_id), WISHES, InProcess())


def values(cluster: Cluster, topic: str) -> list[bytes | None]:
    return [record.value for _, record in read(cluster.bootstrap, topic, 0)]


def numbers(*ranges: range) -> list[bytes | None]:
    return [record.value for range_ in ranges for record in numbered(len(range_), range_.start)]


def test_with_records_that_only_the_source_has(scene: Scenario, back: Scenario) -> None:
    """They stay where they are; what was written to the target since comes behind them; then they come, too."""
    scene.settings["groups"] = back.settings["groups"] = {"include": [f"^{scene.name}"]}
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(100))
    group, at = f"{scene.name}-billing", TopicPartition(scene.topic, 0)
    kafka_groups.commit(scene.source.admin, group, {at: Committed(60)})
    assert scene.run().outcome == "done"
    scene.source.produce(scene.topic, numbered(7, 100))  # never copied
    failover.failover(opened(scene, "over"), WISHES, InProcess())
    scene.target.produce(scene.topic, numbered(20, 200))
    end = scene.target.size(scene.topic)
    kafka_groups.commit(scene.target.admin, group, {at: Committed(end - 5)})

    dry = failback.preview(opened(scene), opened(back), WISHES, InProcess())
    assert [(row.lag, row.surplus) for row in dry.partitions] == [(20, 7)], "shown first"
    done = gone_back(scene, back)
    assert not done.failed, done.text
    assert values(scene.source, scene.topic) == numbers(range(107), range(200, 220))
    places, _ = kafka_groups.committed(scene.source.admin, [group])
    place = places[group][at]
    assert place is not None and place.offset == 100, "it has not read what only the source had"
    assert done.groups[0].again == 15, "and is told what it reads again"

    scene.source.produce(scene.topic, numbered(3, 300))
    report = scene.run()
    assert report.outcome == "done", report.table()
    assert values(scene.target, scene.topic) == numbers(range(100), range(200, 220), range(100, 107), range(300, 303))
    assert back.run().outcome == "failed", "the other direction is sealed"
    assert gone_back(scene, back, "again").text.count("opened before") == 1
