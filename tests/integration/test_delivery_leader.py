"""A target's leader is killed in mid copy: what each profile promises, and what it loses or doubles and reports. Also
where the records of several source partitions lie in the same target partitions.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kafka_replication.kafka.chunk_writer import ChunkWriter
from kafka_replication.kafka.session import KafkaSession
from kafka_replication.ledger.placement import Placement
from stack.kafka_cluster import Broker, KafkaCluster
from tests.support.clusters import Brokers
from tests.support.scenario import Cluster, Rec, Scenario, numbered, only
from tests.support.waiting import wait_until

COUNT, CHUNK = 3_000, 500
BASE = 1_700_000_000_000
SAME = Rec(b"same", b"same", (), BASE)


@pytest.fixture
def scene(source_cluster: Brokers, target3: KafkaCluster, tmp_path: Path) -> Iterator[Scenario]:
    """Its target has three brokers, and three replicas of everything."""
    made = Scenario(Cluster(source_cluster.bootstrap), Cluster(target3.bootstrap), tmp_path)
    made.settings |= {"target_topics": {"replication_factor": 3}}
    made.source.create(made.topic)
    made.source.produce(made.topic, numbered(COUNT))
    made.target.create(made.topic, replicas=3)
    made.target.create(bait(made), 3, replicas=3)
    yield made
    made.store.close()


def bait(scene: Scenario) -> str:
    """A topic of which each broker leads a partition."""
    return f"{scene.name}.bait"


def leader(scene: Scenario, cluster: KafkaCluster) -> Broker:
    found = scene.target.admin.list_topics(scene.topic, timeout=30).topics[scene.topic].partitions[0].leader
    return cluster.broker(found - 1)


def in_third_chunk(patch: pytest.MonkeyPatch, before: Callable[[], None], after: Callable[[], None]) -> None:
    """Call ``before`` the chunk is sent, and ``after`` it was acknowledged as the profile has it."""
    begin, finish, chunks = KafkaSession.begin, ChunkWriter.finish, list[ChunkWriter]()

    def watched_begin(session: KafkaSession) -> ChunkWriter:
        if len(chunks) == 2:
            before()
        chunks.append(begin(session))
        return chunks[-1]

    def watched_finish(writer: ChunkWriter, digest: str) -> Placement:
        placed = finish(writer, digest)
        if writer is chunks[-1] and len(chunks) == 3:
            after()
        return placed

    patch.setattr(KafkaSession, "begin", watched_begin)
    patch.setattr(ChunkWriter, "finish", watched_finish)


def feeding(scene: Scenario, cluster: KafkaCluster, broker: Broker) -> Callable[[], None]:
    """Makes the broker answer the fetch requests that its followers sent before they were frozen: a follower asks for
    all partitions at once, and finds the answer in its socket when it goes on. So it must have nothing of what comes
    next. Connected already, because frozen brokers tell nobody where to connect.
    """
    topic = bait(scene)

    def led() -> list[int]:
        partitions = scene.target.admin.list_topics(topic, timeout=30).topics[topic].partitions
        leaders = {number: about.leader for number, about in partitions.items() if about.leader > 0}
        return [number for number, leader_id in leaders.items() if cluster.broker(leader_id - 1) is broker]

    known: list[int] = []

    def is_known() -> bool:  # not every broker knows a new topic at once, nor does who has just known it
        known.extend(led())
        return bool(known)

    wait_until(is_known)
    partition = known[0]
    producer = Producer({"bootstrap.servers": scene.target.bootstrap, "acks": 1})

    def feed() -> None:
        producer.produce(topic, b"bait", partition=partition)
        assert not producer.flush(30)

    feed()
    return feed


@pytest.fixture
def whole(target3: KafkaCluster) -> Iterator[None]:
    """All brokers run again in the end."""
    yield
    for broker in target3.brokers:
        if broker.process is not None:
            broker.process.send(signal.SIGCONT)
        broker.start()


@pytest.mark.slow
def test_at_least_once_loses_nothing_with_the_leader(
    scene: Scenario, target3: KafkaCluster, monkeypatch: pytest.MonkeyPatch, whole: None
) -> None:
    in_third_chunk(monkeypatch, leader(scene, target3).kill, lambda: None)
    report = scene.run(delivery="at_least_once", copy={"chunk_records": CHUNK})
    assert report.outcome == "done", report.table()
    found = scene.check()
    assert not (found.lost or found.altered or found.foreign or found.reordered), found
    assert len(found.doubled) == only(report).duplicates
    assert (only(report).copied, only(report).lost_in_delivery) == (COUNT, 0)


def leader_dies_alone(
    scene: Scenario, target3: KafkaCluster, old: Broker
) -> tuple[Callable[[], None], Callable[[], None]]:
    """Freezes its followers; then kills it before they know what it has, and awaits the next one."""
    followers, feed = [broker for broker in target3.brokers if broker is not old], feeding(scene, target3, old)

    def freeze() -> None:
        for broker in followers:
            assert broker.process is not None
            broker.process.send(signal.SIGSTOP)
        feed()

    def lead_alone_no_more() -> None:
        old.kill()
        for broker in followers:
            assert broker.process is not None
            broker.process.send(signal.SIGCONT)
        wait_until(lambda: leader(scene, target3) is not old)

    return freeze, lead_alone_no_more


@pytest.mark.slow
@pytest.mark.parametrize("accept", [0.0, 0.5])
def test_leader_ack_loses_what_the_leader_alone_had(
    scene: Scenario, target3: KafkaCluster, monkeypatch: pytest.MonkeyPatch, whole: None, accept: float
) -> None:
    in_third_chunk(monkeypatch, *leader_dies_alone(scene, target3, leader(scene, target3)))
    report = scene.run(delivery="leader_ack", accept_loss=accept, copy={"chunk_records": CHUNK})
    found = scene.check()
    line = only(report)
    assert not (found.altered or found.foreign), found
    assert (len(found.lost), len(found.doubled)) == (line.lost_in_delivery, line.duplicates)
    assert 0 < line.lost_in_delivery <= 3 * CHUNK  # of the first two, too, what no follower had yet
    assert line.copied == COUNT - line.lost_in_delivery
    assert (report.outcome, scene.watermark() or 0) == (("done", COUNT) if accept else ("failed", 0)), report.table()
    assert accept or f"{len(found.lost)} of {COUNT} records were lost in delivery" in (line.error or "")


@pytest.mark.slow
def test_fire_and_forget_loses_what_it_sends_while_nobody_leads(
    scene: Scenario, target3: KafkaCluster, monkeypatch: pytest.MonkeyPatch, whole: None
) -> None:
    old = leader(scene, target3)
    in_third_chunk(monkeypatch, old.kill, lambda: wait_until(lambda: leader(scene, target3) is not old))
    report = scene.run(delivery="fire_and_forget", accept_loss=1.0, copy={"chunk_records": CHUNK})
    assert report.outcome == "done", report.table()
    found, line = scene.check(), only(report)
    assert not (found.altered or found.foreign), found
    assert (len(found.lost), len(found.doubled)) == (line.lost_in_delivery, line.duplicates)
    assert line.copied == COUNT - line.lost_in_delivery
    print(f"lost {line.lost_in_delivery}, doubled {line.duplicates}")
