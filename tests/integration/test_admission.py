"""Every way to get a login, TLS or an address wrong: the true cause, at once, on real listeners."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_replication.config import Copy
from kafka_replication.kafka import clients, offsets
from kafka_replication.kafka.cursor import Cursor
from kafka_replication.kafka.transactions import TransactionalProducer
from kafka_replication.model.errors import NotAuthenticated, ReplicationError, Unreachable
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.runs.run import Request
from kafka_replication.runtime.deadline import NEVER
from kafka_replication.spark import worker
from tests.support import whole_runs
from tests.support.addresses import Addresses
from tests.support.command_line import command
from tests.support.jobs import InProcess
from tests.support.scenario import Cluster, Scenario, numbered
from tests.support.tls import TlsCluster, tls_cluster
from tests.support.waiting import wait_until
from tests.support.ways_in import RIGHT, WRONG, Settings, closed

PATIENCE = 3600.0  # seconds that a client may wait; a final cause is told in a small part of it


@pytest.fixture(scope="module")
def tls(stack_folder: Path) -> Iterator[TlsCluster]:
    with tls_cluster(stack_folder) as cluster:
        yield cluster


@pytest.mark.parametrize("way", RIGHT)
def test_a_client_gets_in(tls: TlsCluster, way: str) -> None:
    clients.admin(RIGHT[way](tls), PATIENCE)


@pytest.mark.parametrize("way", WRONG)
def test_the_true_cause_is_told_at_once(tls: TlsCluster, way: str) -> None:
    settings_of, kind, said, remedy = WRONG[way]
    settings = clients.check_connection("our_kafka", settings_of(tls), "target")
    started = time.monotonic()
    with pytest.raises(ReplicationError) as caught:
        clients.admin(settings, PATIENCE)
    seconds = time.monotonic() - started
    print(f"{way}: {seconds:.1f} s: {caught.value}")
    assert type(caught.value) is kind, caught.value
    assert said in caught.value.what and remedy in caught.value.remedy, caught.value
    assert f"target {settings['bootstrap.servers']} (connection 'our_kafka')" in caught.value.what
    assert seconds < PATIENCE / 100


def test_the_passwords_stay_secret(tls: TlsCluster) -> None:
    with pytest.raises(NotAuthenticated) as caught:
        clients.admin(tls.login(sasl_password="hidden-word"), PATIENCE)
    assert "hidden-word" not in str(caught.value)


def test_a_broker_that_does_not_listen_yet_is_waited_for() -> None:
    started = time.monotonic()
    with pytest.raises(Unreachable, match="connection refused") as caught:
        clients.admin({"bootstrap.servers": closed()}, 2.0)
    assert time.monotonic() - started >= 2.0 and type(caught.value) is Unreachable


# The commands, and which side is wrong.
TOLD = [("check", "password", "source"), ("check", "expired", "target"), ("check", "plaintext to TLS", "source")]
TOLD += [("run", "password", "target"), ("run", "authority", "source"), ("status", "no login", "target")]


def test_the_commands_tell_it(scene: Scenario, tls: TlsCluster) -> None:
    scene.source.create(scene.topic)

    def told(case: tuple[str, str, str]) -> tuple[int, str, float]:
        name, way, side = case
        extra = json.dumps({"conn_type": "kafka", "extra": WRONG[way][0](tls)})
        started = time.monotonic()
        code, out, _ = command(scene, name, "--json", **{f"AIRFLOW_CONN_{side.upper()}": extra})
        return code, out, time.monotonic() - started

    with ThreadPoolExecutor(3) as threads:
        found = dict(zip(TOLD, threads.map(told, TOLD), strict=True))
    for (name, way, side), (code, out, seconds) in found.items():
        print(f"{name}, {way}: {seconds:.1f} s with the start of Python")
        document, (_, kind, said, remedy) = json.loads(out), WRONG[way]
        assert (code, document["error_id"]) == (1, kind.id), out
        assert side in document["error"] and said in document["error"] and remedy in document["remedy"], out


@pytest.mark.slow
@pytest.mark.parametrize("name", ["check", "run"])
@pytest.mark.parametrize("way", WRONG)
def test_each_way_is_told_by_the_command(scene: Scenario, tls: TlsCluster, way: str, name: str) -> None:
    settings_of, kind, said, remedy = WRONG[way]
    extra = json.dumps({"conn_type": "kafka", "extra": settings_of(tls)})
    started = time.monotonic()
    code, out, _ = command(scene, name, "--json", AIRFLOW_CONN_SOURCE=extra)
    print(f"{name}, {way}: {time.monotonic() - started:.1f} s with the start of Python")
    document = json.loads(out)
    assert (code, document["error_id"]) == (1, kind.id), out
    assert said in document["error"] and remedy in document["remedy"], out


def test_a_producer_is_told_while_it_fences(tls: TlsCluster) -> None:
    settings = clients.check_connection("our_kafka", tls.login(sasl_password="wrong"), "target")
    producer = TransactionalProducer("kafka-replication/a/opening", "opening", settings, Copy(), NEVER)
    started = time.monotonic()
    with pytest.raises(NotAuthenticated, match="refuses the login of 'replicator'"):
        producer.fence()
    print(f"fencing: {time.monotonic() - started:.1f} s")


def test_a_worker_is_told_and_does_not_try_again(scene: Scenario, tls: TlsCluster) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(10))
    job = replace(scene.copy_job(), source=clients.check_connection("our_kafka", tls.tls("EXPIRED"), "source"))
    started = time.monotonic()
    copied = worker.replicate(job, job.tasks[0]).copied
    print(f"worker: {time.monotonic() - started:.1f} s: {copied and copied.error}")
    assert copied is not None and copied.error is not None and not copied.retriable
    assert "source" in copied.error and "certificate has expired" in copied.error and "renew" in copied.remedy


def test_a_reader_is_told_that_its_password_was_changed(tls: TlsCluster) -> None:
    """It waits for records that never come; without what its connection reports, it would say that it stalls."""
    Cluster(tls.cluster.bootstrap).create("waiting")
    settings = clients.check_connection("our_kafka", tls.scram("reader", "first"), "source")
    cursor = Cursor(settings, "group", TopicPartition("waiting", 0), PATIENCE)
    admin = clients.admin(settings)
    assert offsets.high_watermarks(admin, [TopicPartition("waiting", 0)]) == {TopicPartition("waiting", 0): 0}
    tls.scram("reader", "second")
    started = time.monotonic()
    with pytest.raises(NotAuthenticated, match="refuses the login of 'reader' by SCRAM-SHA-512"):
        list(cursor.read(OffsetRange(0, 1)))
    print(f"reader: {time.monotonic() - started:.1f} s")

    def refused() -> bool:
        """An admin client may still have a connection that is not asked for the password again yet."""
        try:
            offsets.high_watermarks(admin, [TopicPartition("waiting", 0)])
        except NotAuthenticated as error:
            return "refuses the login of 'reader' by SCRAM-SHA-512" in error.what
        return False

    started = time.monotonic()
    wait_until(refused)
    print(f"admin: {time.monotonic() - started:.1f} s")


class Secured(Addresses):
    """The target asks for a login."""

    def __init__(self, source: str, target: Settings) -> None:
        super().__init__(source, str(target["bootstrap.servers"]))
        object.__setattr__(self, "_target", target)

    def kafka(self, connection_id: str) -> Settings:
        return dict(self._target) if connection_id == "target" else super().kafka(connection_id)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_run_is_told_that_its_password_was_changed_in_the_middle(scene: Scenario, tls: TlsCluster) -> None:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(100))
    connections = Secured(scene.source.bootstrap, tls.scram(scene.name, "first"))
    changed: list[float] = []

    def change() -> None:
        tls.scram(scene.name, "second")
        changed.append(time.monotonic())

    launcher = InProcess(between=change)
    with pytest.raises(NotAuthenticated, match=f"refuses the login of '{scene.name}'") as caught:
        whole_runs.run(scene.replication(), connections, scene.store, launcher, Request())
    print(f"run: {time.monotonic() - changed[0]:.1f} s after the change: {caught.value}")
    healed = Secured(scene.source.bootstrap, tls.scram(scene.name, "second"))
    report = whole_runs.run(scene.replication(), healed, scene.store, InProcess(), Request())
    assert report.outcome == "done", report.table()
    assert scene.watermark() == 100
