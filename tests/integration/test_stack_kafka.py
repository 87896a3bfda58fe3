"""The embedded Kafka clusters: they keep records, survive kill -9, and refuse to start what they cannot vouch for."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from stack.artifacts import CURRENT, check, kafka_jars, read_lock
from stack.demo_data import create_topic
from stack.errors import StackError
from stack.kafka_cluster import KafkaCluster
from stack.maven import central_mirror
from stack.ports import free_ports
from stack.processes import ProcessRecord
from tests.support.clusters import Brokers


def new_topic(cluster: Brokers | KafkaCluster, replicas: int) -> str:
    topic = f"stack-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=replicas)])[topic].result(30)
    return topic


def produce(cluster: Brokers | KafkaCluster, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "message.timeout.ms": 30_000})
    failures: list[object] = []
    producer.produce(topic, value, partition=0, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(40) == 0
    assert failures == []


def values(cluster: Brokers | KafkaCluster, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": uuid.uuid4().hex, "enable.auto.commit": False}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [message.value() or b"" for message in consumer.consume(count, 40) if message.error() is None]
    finally:
        consumer.close()


def test_a_record_comes_back_from_each_cluster(source_cluster: Brokers, target_cluster: Brokers) -> None:
    assert source_cluster.bootstrap != target_cluster.bootstrap
    for cluster in (source_cluster, target_cluster):
        topic = new_topic(cluster, replicas=1)
        produce(cluster, topic, cluster.bootstrap.encode())
        assert values(cluster, topic, 1) == [cluster.bootstrap.encode()]


@pytest.mark.slow
def test_a_killed_broker_comes_back_with_its_records(own_cluster: KafkaCluster) -> None:
    topic = new_topic(own_cluster, replicas=1)
    produce(own_cluster, topic, b"before")
    broker = own_cluster.broker(0)
    before, port = broker.pid, broker.port
    try:
        broker.kill()
        runs_while_dead = own_cluster.running
        assert not runs_while_dead
        with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), timeout=5):
            pass
    finally:
        broker.start()
    assert own_cluster.running
    assert broker.pid != before
    produce(own_cluster, topic, b"after")
    assert values(own_cluster, topic, 2) == [b"before", b"after"]


@pytest.mark.slow
def test_three_brokers_take_records_while_one_is_dead(target3: KafkaCluster) -> None:
    topic = new_topic(target3, replicas=3)
    target3.broker(1).kill()
    try:
        produce(target3, topic, b"two of three")
        assert values(target3, topic, 1) == [b"two of three"]
    finally:
        target3.broker(1).start()


def test_topics_are_not_created_by_asking_for_them(source_cluster: Brokers) -> None:
    topic = f"never-created-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": source_cluster.bootstrap, "allow.auto.create.topics": True})
    assert admin.list_topics(topic, timeout=30).topics[topic].error is not None
    assert topic not in admin.list_topics(timeout=30).topics


def test_a_second_program_finds_the_running_cluster(own_cluster: KafkaCluster) -> None:
    again = KafkaCluster("own", own_cluster.folder.parent)
    pid = own_cluster.broker(0).pid
    again.start()
    assert again.running
    assert (again.bootstrap, again.broker(0).pid) == (own_cluster.bootstrap, pid)


def test_a_taken_port_is_named_and_nothing_is_started(tmp_path: Path) -> None:
    [port] = free_ports(1)
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        cluster = KafkaCluster("busy", tmp_path, ports=[port])
        with pytest.raises(StackError, match=f"port {port} is taken"):
            cluster.start()
    assert not cluster.running


def test_a_broker_that_dies_shows_its_log(tmp_path: Path) -> None:
    cluster = KafkaCluster("dying", tmp_path, extra={"metric.reporters": "no.such.Reporter"})
    with pytest.raises(StackError, match=r"broker 1 of dying .* ended while starting(.|\n)*no\.such\.Reporter"):
        cluster.start()
    assert not cluster.running


def test_without_java_the_message_names_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(StackError, match="Java 17") as caught:
        KafkaCluster("no-java", tmp_path).start()
    assert "openjdk-17-jre-headless" in caught.value.remedy


def test_a_jar_with_a_wrong_checksum_is_refused_by_name(tmp_path: Path) -> None:
    real = kafka_jars()
    copy = tmp_path / real.name
    copy.mkdir()
    for jar in real.glob("*.jar"):
        (copy / jar.name).hardlink_to(jar) if jar.stat().st_dev == tmp_path.stat().st_dev else (
            copy / jar.name
        ).write_bytes(jar.read_bytes())
    assert kafka_jars(cache=tmp_path) == copy
    name = next(each for each in read_lock(CURRENT.lock) if each.startswith("kafka-clients-"))
    (copy / name).unlink()
    (copy / name).write_bytes((real / name).read_bytes() + b"\0")
    with pytest.raises(StackError, match=f"wrong checksum: {name}"):
        kafka_jars(cache=tmp_path)


def test_a_jar_that_the_lock_does_not_know_is_refused(tmp_path: Path) -> None:
    (tmp_path / "stranger.jar").touch()
    with pytest.raises(StackError, match=r"stranger\.jar is in .* but not in"):
        check(tmp_path, {}, CURRENT.lock)


@pytest.mark.parametrize(
    ("mirror_of", "expected"),
    [("central", "https://m.example/maven2"), ("*", "https://m.example/maven2"), ("*,!central", None), ("other", None)],
)
def test_ivy_takes_the_mirror_of_mavens_settings(tmp_path: Path, mirror_of: str, expected: str | None) -> None:
    settings = tmp_path / "settings.xml"
    mirror = f"<mirror><id>m</id><mirrorOf>{mirror_of}</mirrorOf><url>https://m.example/maven2</url></mirror>"
    settings.write_text(
        f'<settings xmlns="http://maven.apache.org/SETTINGS/1.2.0"><mirrors>{mirror}</mirrors></settings>'
    )
    assert central_mirror([settings]) == expected


def test_a_process_that_was_given_a_recorded_pid_is_not_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as stranger:
        try:
            stale = ProcessRecord(stranger.pid, "an earlier start")
            assert not stale.alive
            stale.send(signal.SIGKILL)
            with pytest.raises(subprocess.TimeoutExpired):
                stranger.wait(0.5)
            current = ProcessRecord.of(stranger.pid)
            assert current is not None
            current.send(signal.SIGKILL)
            assert stranger.wait(10) == -signal.SIGKILL
        finally:
            stranger.kill()


def test_a_topic_of_ones_own_is_made_with_one_line(source_cluster: Brokers, tmp_path: Path) -> None:
    """As `make topic NAME=... PARTITIONS=3` does; a second time changes nothing."""
    name = f"stack-{uuid.uuid4().hex[:8]}"
    for _ in range(2):
        create_topic(source_cluster.bootstrap, name, 3)
    admin = AdminClient({"bootstrap.servers": source_cluster.bootstrap})
    assert len(admin.list_topics(name, timeout=30).topics[name].partitions) == 3
    said = subprocess.run(
        ["make", "-n", "topic", f"NAME={name}", "PARTITIONS=3", "INSTALLED="],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f'-m stack topic "{name}" --partitions 3' in said.stdout
    done = subprocess.run(
        [sys.executable, "-m", "stack", "topic", name],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "KAFKA_REPLICATION_STATE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and "the clusters were never started" in done.stderr
