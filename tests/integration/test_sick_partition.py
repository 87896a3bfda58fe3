"""One partition that does not answer is named. The others are copied, verified and advanced in every run, from the first on."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_replication.model.errors import Unreachable
from kafka_replication.planning.backfill_request import BackfillRequest, parse
from kafka_replication.planning.plan import State
from kafka_replication.reporting.run import RunReport
from stack.kafka_cluster import Broker, KafkaCluster
from stack.ports import free_ports
from tests.support import whole_runs
from tests.support.clusters import Brokers
from tests.support.command_line import command
from tests.support.jobs import InProcess
from tests.support.scenario import Cluster, Scenario, numbered, only
from tests.support.waiting import wait_until

HEALTHY, SICK = tuple(range(2)), 2  # the fault table has rows with 20
SETTINGS = {"timeouts": {"request": 6}}


def spread(cluster: Cluster, topic: str, healthy: int) -> None:
    """A topic without replicas. Its last partition is on the third broker, the others are not."""
    cluster.create(topic, assignment=[[1 + number % 2] for number in range(healthy)] + [[3]])


@contextmanager
def away(cluster: Cluster, broker: Broker, topic: str, partition: int) -> Iterator[None]:
    """The broker is down, and the controllers know it: ``partition`` has no leader."""

    def leader() -> int:
        return cluster.admin.list_topics(topic, timeout=30).topics[topic].partitions[partition].leader

    broker.kill()
    try:
        wait_until(lambda: leader() < 0)
        yield
    finally:
        broker.start()
        wait_until(lambda: leader() >= 0)


@pytest.fixture
def source_scene(target3: KafkaCluster, target_cluster: Brokers, tmp_path: Path) -> Iterator[Scenario]:
    """Its source has three brokers."""
    made = Scenario(Cluster(target3.bootstrap), Cluster(target_cluster.bootstrap), tmp_path)
    made.settings |= SETTINGS
    yield made
    made.store.close()


@pytest.fixture
def target_scene(source_cluster: Brokers, target3: KafkaCluster, tmp_path: Path) -> Iterator[Scenario]:
    """Its target has three brokers, and the ledger three replicas."""
    made = Scenario(Cluster(source_cluster.bootstrap), Cluster(target3.bootstrap), tmp_path)
    made.settings |= SETTINGS
    yield made
    made.store.close()


def produce(scene: Scenario, count: int, *partitions: int, first: int = 0) -> None:
    for partition in partitions:
        scene.source.produce(scene.topic, numbered(count, first), partition)


def only_the_sick_one_fails(scene: Scenario, end: int) -> None:
    """A run that copies what the healthy partitions have, and names the other one."""
    report = scene.run()
    assert [line.key.source.partition for line in report.failed] == [SICK], report.table()
    assert f"{scene.topic}-{SICK} has no leader" in (only(report, SICK).error or "")
    assert only(report, SICK).remedy
    assert [scene.watermark(partition) for partition in HEALTHY] == [end] * len(HEALTHY)


def test_a_source_partition_without_a_leader(source_scene: Scenario, target3: KafkaCluster) -> None:
    scene = source_scene
    spread(scene.source, scene.topic, len(HEALTHY))
    produce(scene, 20, *HEALTHY, SICK)
    with away(scene.source, target3.broker(2), scene.topic, SICK):
        only_the_sick_one_fails(scene, 20)  # the first run
        produce(scene, 10, *HEALTHY, first=20)
        only_the_sick_one_fails(scene, 30)
    produce(scene, 10, SICK, first=20)
    report = scene.run()
    assert (report.outcome, len(report.ranges)) == ("done", 1), report.table()
    scene.assert_copied(*HEALTHY, SICK)
    assert scene.watermark(SICK) == 30


@pytest.mark.slow
def test_a_source_partition_that_has_a_position_loses_its_leader(source_scene: Scenario, target3: KafkaCluster) -> None:
    scene = source_scene
    spread(scene.source, scene.topic, len(HEALTHY))
    produce(scene, 30, *HEALTHY, SICK)
    assert scene.run().outcome == "done"
    produce(scene, 5, SICK, first=30)
    with away(scene.source, target3.broker(2), scene.topic, SICK):
        produce(scene, 5, *HEALTHY, first=30)
        only_the_sick_one_fails(scene, 35)
    assert scene.run().outcome == "done"
    scene.assert_copied(*HEALTHY, SICK)


@pytest.mark.slow  # a row of the faults; the source has one above
def test_a_target_partition_without_a_leader(target_scene: Scenario, target3: KafkaCluster) -> None:
    scene = target_scene
    scene.source.create(scene.topic, len(HEALTHY) + 1)
    spread(scene.target, scene.topic, len(HEALTHY))
    produce(scene, 20, *HEALTHY, SICK)
    with away(scene.target, target3.broker(2), scene.topic, SICK):
        only_the_sick_one_fails(scene, 20)
    assert scene.run().outcome == "done"
    scene.assert_copied(*HEALTHY, SICK)


@pytest.mark.slow
def test_a_target_partition_that_has_a_position_loses_its_leader(target_scene: Scenario, target3: KafkaCluster) -> None:
    scene = target_scene
    scene.source.create(scene.topic, len(HEALTHY) + 1)
    spread(scene.target, scene.topic, len(HEALTHY))
    produce(scene, 30, *HEALTHY, SICK)
    assert scene.run().outcome == "done"
    produce(scene, 5, *HEALTHY, SICK, first=30)
    with away(scene.target, target3.broker(2), scene.topic, SICK):
        only_the_sick_one_fails(scene, 35)
    assert scene.run().outcome == "done"
    scene.assert_copied(*HEALTHY, SICK)


@pytest.mark.slow
def test_latest_is_resolved_once_also_for_a_partition_that_does_not_answer(
    source_scene: Scenario, target3: KafkaCluster
) -> None:
    """Of the partition that was away, the records that were written after the first run are copied, and no older ones."""
    scene = source_scene
    scene.settings |= {"start_from": "latest"}
    spread(scene.source, scene.topic, 1)
    produce(scene, 20, 0, 1)
    with away(scene.source, target3.broker(2), scene.topic, 1):
        report = scene.run()
        assert [line.key.source.partition for line in report.failed] == [1], report.table()
        assert scene.position(0).start == 20
        start = scene.bare_run().view().starts[scene.key(1)]
        assert start.offset is None
    now = int(time.time() * 1000)
    scene.source.produce(scene.topic, [replace(record, timestamp=now) for record in numbered(7, 20)], 1)
    assert scene.run().outcome == "done"
    assert scene.position(1).start == 20
    scene.assert_copied(1, from_=20)
    assert scene.watermark(1) == 27


@pytest.mark.slow
def test_what_answers_is_shown_and_what_does_not_is_named(
    source_scene: Scenario, target3: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = source_scene
    spread(scene.source, scene.topic, 1)
    produce(scene, 5, 0, 1)
    sick = f"{scene.topic}-1 has no leader"
    with away(scene.source, target3.broker(2), scene.topic, 1):
        code, out, _ = command(scene, "check", "--json")
        assert (code, [each["where"] for each in json.loads(out)["findings"] if each["severity"] == "error"]) == (
            1,
            [f"{scene.topic}-1 on the source"],
        )
        code, out, _ = command(scene, "plan", "--json")
        assert (code, [each["state"] for each in json.loads(out)["partitions"]]) == (
            1,
            [State.OPENING, State.UNREADABLE],
        )
        code, out, _ = command(scene, "status", "--json")
        assert (code, [(each["source_end"], each["lag"]) for each in json.loads(out)["partitions"]]) == (
            1,
            [(5, 5), (None, None)],
        )
        assert sick in command(scene, "status")[1]
    assert scene.run().outcome == "done"
    scene.source = Cluster(scene.source.bootstrap)
    monkeypatch.setattr(scene.source, "bootstrap", f"127.0.0.1:{free_ports(1)[0]}")
    code, out, _ = command(scene, "status", "--json")
    assert (code, [(each["position"], each["watermark"]) for each in json.loads(out)["partitions"]]) == (
        1,
        [(5, 5), (5, 5)],
    )


@pytest.mark.slow
def test_a_backfill_of_healthy_partitions_is_done(source_scene: Scenario, target3: KafkaCluster) -> None:
    scene = source_scene
    spread(scene.source, scene.topic, 1)
    produce(scene, 5, 0, 1)
    again = f"{scene.topic}.again"

    def asked(partition: str) -> BackfillRequest:
        return parse(
            scene.replication(), topics=[scene.topic], partitions=[partition], from_="0", until="5", target_topic=again
        )

    def run(partition: str) -> RunReport:
        return whole_runs.backfill(scene.replication(), scene.connections, scene.store, InProcess(), asked(partition))

    with away(scene.source, target3.broker(2), scene.topic, 1):
        assert [(line.copied, line.error) for line in run("0").ranges] == [(5, None)]
        with pytest.raises(Unreachable, match=f"{scene.topic}-1 has no leader"):
            run("1")
    assert [(line.copied, line.error) for line in run("1").ranges] == [(5, None)]
