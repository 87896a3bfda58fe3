"""A target that can lose records is refused before anything is created on it, in the very first run too."""

from __future__ import annotations

import pytest

from kafka_replication.kafka.metadata import snapshotter
from kafka_replication.ledger.entries import POSITIONS, RECEIPTS
from kafka_replication.model.errors import PreflightFailed
from kafka_replication.planning.snapshot import TopicDefaults
from kafka_replication.planning.topics import ledger_topics
from tests.support.scenario import Scenario, numbered, only

REFUSE = {"preflight": {"unsafe_target": "refuse"}}


def test_the_first_run_refuses_an_unsafe_target_before_it_creates_a_topic(own_scene: Scenario) -> None:
    scene = own_scene
    for ledger_topic in (POSITIONS, RECEIPTS):  # of the tests that had this cluster before
        if scene.target.partitions(ledger_topic):
            scene.target.delete(ledger_topic)
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(5))
    scene.settings |= REFUSE
    before = set(scene.target.admin.list_topics(timeout=30).topics)
    with pytest.raises(PreflightFailed) as refused:
        scene.run()
    assert all(name in refused.value.what for name in (POSITIONS, RECEIPTS))
    assert set(scene.target.admin.list_topics(timeout=30).topics) == before
    assert scene.watermark() is None
    scene.settings["preflight"] = {"unsafe_target": "warn"}
    assert scene.run().outcome == "done"
    scene.assert_copied()
    scene.settings |= REFUSE
    with pytest.raises(PreflightFailed, match="the ledger topic has replication factor 1"):
        scene.run()


def test_topics_that_brokers_create_otherwise_than_they_said_stay_empty(
    own_scene: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = own_scene
    safe = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
    monkeypatch.setattr(snapshotter, "topic_defaults", lambda admin: TopicDefaults(3, safe))
    monkeypatch.setattr(ledger_topics, "check", lambda replication, snapshot: iter(()))
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(5))
    scene.settings |= REFUSE
    report = scene.run()
    assert report.outcome == "failed" and "replication factor 1" in (only(report).error or ""), report.table()
    assert (scene.target.partitions(scene.topic), scene.target.size(scene.topic)) == (1, 0)
    assert scene.bare_run().view().positions == {}
