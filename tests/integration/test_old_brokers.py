"""Brokers of Kafka 2.8 with ZooKeeper, and what they leave behind for their successors (`make matrix`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from confluent_kafka import KafkaException

from kafka_replication.ledger.entries import POSITIONS, RECEIPTS
from kafka_replication.runs import checking
from kafka_replication.runs.run import open_run
from stack.artifacts import OLDER, OLDEST
from stack.kafka_cluster import KafkaCluster
from tests.support.clusters import locked, started
from tests.support.command_line import cli, ended
from tests.support.scenario import Cluster, Rec, Scenario, numbered, only
from tests.support.secured import Acl, on_topic, secured_cluster

pytestmark = pytest.mark.slow  # they fetch these brokers
MANY = 6_000  # the record engine alone would copy fewer


@pytest.fixture(scope="module")
def old_cluster(stack_folder: Path) -> Iterator[KafkaCluster]:
    with locked(stack_folder, "oldest"), started(cluster := KafkaCluster("oldest", stack_folder, release=OLDEST)):
        yield cluster


def _told(scene: Scenario, command: str) -> tuple[int, str]:
    code, out, _ = ended(cli(scene, yaml.safe_dump(scene.document()), scene.source.bootstrap, command))
    return code, out


@pytest.mark.parametrize("engine", ["record", "batch", "auto"])
def test_records_of_format_1_are_copied(scene: Scenario, old_cluster: KafkaCluster, engine: str) -> None:
    scene.source = Cluster(old_cluster.bootstrap)
    scene.source.create(scene.topic, 1, {"message.format.version": "0.10.2"})
    for codec in ("gzip", "none"):
        scene.source.produce(scene.topic, numbered(MANY), compression_type=codec)
    scene.source.produce(scene.topic, [Rec(b"k", None), Rec(None, b"v")])
    report = scene.run(copy={"engine": engine})
    assert (report.outcome, only(report).copied) == ("done", 2 * MANY + 2), report.table()
    assert only(report).engines == ("record/1",), report.table()
    scene.assert_copied()


@pytest.mark.parametrize("engine", ["record", "batch", "auto"])
def test_records_of_format_0_are_refused_by_name(scene: Scenario, old_cluster: KafkaCluster, engine: str) -> None:
    """They have no timestamp. Those behind them, in a later format, come after that was decided."""
    scene.source = Cluster(old_cluster.bootstrap)
    scene.source.create(scene.topic, 1, {"message.format.version": "0.9.0"})
    scene.source.produce(scene.topic, numbered(10), compression_type="gzip")
    assert "records in message format 0 have no timestamp" in _told(scene, "check")[1]
    scene.source.set(scene.topic, message_format_version="2.8")
    scene.source.produce(scene.topic, numbered(MANY, 10))
    report = scene.run(copy={"engine": engine})
    assert "offset 0 " in (error := only(report).error or "") and "message format 0" in error, report.table()
    assert "failures.policy" in (only(report).remedy or "")
    report = scene.run(copy={"engine": engine}, failures={"policy": "skip"})
    assert (report.outcome, only(report).copied) == ("done", MANY), report.table()
    scene.assert_copied(from_=10)


def test_what_an_old_broker_stored_is_copied_after_its_upgrade(scene: Scenario, stack_folder: Path) -> None:
    old = KafkaCluster("upgraded", stack_folder, release=OLDEST)
    with started(old):
        scene.source = Cluster(old.bootstrap)
        scene.source.create(scene.topic, 1, {"message.format.version": "0.10.2"})
        scene.source.produce(scene.topic, numbered(MANY), compression_type="gzip")
        old.broker(0).stop()
    new = KafkaCluster("upgraded", stack_folder, release=replace(OLDER, zookeeper=True))
    with started(new):
        scene.source = Cluster(new.bootstrap)
        scene.source.produce(scene.topic, numbered(MANY, MANY))
        report = scene.run()
        assert (report.outcome, only(report).copied) == ("done", 2 * MANY), report.table()
        scene.assert_copied()


def test_an_old_target_gets_the_limits_that_it_knows(scene: Scenario, old_cluster: KafkaCluster) -> None:
    scene.target = Cluster(old_cluster.bootstrap)
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(100))
    code, out = _told(scene, "check")
    assert code == 0 and "older than Kafka 3.0" in out, out
    assert scene.run().outcome == "done"
    scene.assert_copied()
    scene.target.set(scene.topic, message_format_version="0.10.2")
    assert "neither transactions nor headers" in _told(scene, "check")[1]


@pytest.mark.parametrize("side", ["source", "target"])
def test_topics_without_ids_are_refused(scene: Scenario, stack_folder: Path, side: str) -> None:
    """As brokers before Kafka 2.8 have them, and later ones that keep their format."""
    extra = {"inter.broker.protocol.version": "2.7"}
    with started(cluster := KafkaCluster(f"without-ids-{side}", stack_folder, release=OLDEST, extra=extra)):
        setattr(scene, side, old := Cluster(cluster.bootstrap))
        old.create("first")
        scene.source.create(scene.topic)
        scene.source.produce(scene.topic, numbered(10))
        code, out = _told(scene, "check")
        assert code == 1 and "has no id (KIP-516)" in out and "inter.broker.protocol.version" in out, out
        code, out = _told(scene, "run")
        assert code == 1
        assert not scene.target.size(scene.topic) and not old.size(POSITIONS)


def test_rights_that_zookeeper_can_store_are_enough(scene: Scenario, stack_folder: Path) -> None:
    """It takes no name with a slash, so rights on groups and transactional ids are granted for what comes before it."""
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(100))
    with secured_cluster(stack_folder, OLDEST) as secured:
        scene.client = secured.add_user("writer")
        scene.target = Cluster(secured.address)
        for topic in (scene.topic, POSITIONS, RECEIPTS):
            secured.grant("writer", *on_topic(topic, "READ", "WRITE", "CREATE", "DESCRIBE_CONFIGS"))
        with pytest.raises(KafkaException, match="Unknown broker error"):
            secured.grant("writer", Acl("DESCRIBE", "GROUP", f"kafka-replication/{scene.name}"))
        found = checking.check(
            open_run(scene.replication(), scene.connections, scene.store, "check", looks=True)
        ).findings
        assert [finding for finding in found if "before the slash: --group kafka-replication " in finding.remedy]
        secured.grant("writer", Acl("DESCRIBE", "GROUP", "kafka-replication", prefixed=True))
        secured.grant("writer", Acl("WRITE", "TRANSACTIONAL_ID", "kafka-replication", prefixed=True))
        report = scene.run()
        assert (report.outcome, only(report).copied, only(report).digest_ok) == ("done", 100, True), report.table()
