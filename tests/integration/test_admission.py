"""Every way to get a login, TLS or an address wrong: the true cause, at once, on real listeners."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_replication.config import Copy
from kafka_replication.kafka import clients, offsets
from kafka_replication.kafka.cursor import Cursor
from kafka_replication.kafka.transactions import TransactionalProducer
from kafka_replication.model.errors import (
    NotAuthenticated,
    NotResolved,
    ReplicationError,
    TlsFailed,
    Unreachable,
)
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.runs import runner
from kafka_replication.runs.run import Request
from kafka_replication.runtime.deadline import NEVER
from kafka_replication.spark import worker
from tests.support.command_line import command
from tests.support.jobs import InProcess
from tests.support.scenario import Addresses, Cluster, Scenario, numbered
from tests.support.tls import TlsCluster, tls_cluster

Settings = dict[str, Any]
PATIENCE = 60.0  # seconds that a client may wait; a final cause is told in a small part of it
NOWHERE = "no-such-host.invalid:9092"


@pytest.fixture(scope="module")
def tls(stack_folder: Path) -> Iterator[TlsCluster]:
    with tls_cluster(stack_folder) as cluster:
        yield cluster


def closed() -> str:
    """An address where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


def with_certificate(tls: TlsCluster, authority: str) -> Settings:
    """A client of the listener for mutual TLS, with a certificate of this authority."""
    file = getattr(tls, authority).issue(f"client-of-{authority}")
    return tls.tls("MUTUAL", ssl_certificate_location=file, ssl_key_location=file)


def at(tls: TlsCluster, listener: str, settings: Settings) -> Settings:
    return {**settings, "bootstrap.servers": tls.address(listener)}


Way = Callable[[TlsCluster], Settings]
RIGHT: Mapping[str, Way] = {
    "TLS": lambda tls: tls.tls(),
    "login": lambda tls: tls.login(),
    "mutual": lambda tls: with_certificate(tls, "authority"),
    "one of two does not listen": lambda tls: {**tls.tls(), "bootstrap.servers": f"{closed()},{tls.address('TLS')}"},
    "one of two is unknown": lambda tls: {**tls.tls(), "bootstrap.servers": f"{NOWHERE},{tls.address('TLS')}"},
    "one of two has expired": lambda tls: {
        **tls.tls(),
        "bootstrap.servers": f"{tls.address('EXPIRED')},{tls.address('TLS')}",
    },
}
# What must stand in the message, and in the remedy.
WRONG: Mapping[str, tuple[Way, type[ReplicationError], str, str]] = {
    "password": (
        lambda tls: tls.login(sasl_password="wrong"),
        NotAuthenticated,
        "the broker refuses the login of 'replicator' by PLAIN",
        "sasl.password",
    ),
    "user": (
        lambda tls: tls.login(sasl_username="nobody", sasl_mechanism="SCRAM-SHA-512"),
        NotAuthenticated,
        "the broker refuses the login of 'nobody' by SCRAM-SHA-512",
        "sasl.username",
    ),
    "mechanism": (
        lambda tls: tls.login(sasl_mechanism="SCRAM-SHA-256"),
        NotAuthenticated,
        "SCRAM-SHA-256 mechanism handshake failed",
        "sasl.mechanism",
    ),
    "login where none is taken": (
        lambda tls: at(tls, "TLS", tls.login()),
        NotAuthenticated,
        "takes no login",
        "security.protocol",
    ),
    "no login over TLS": (
        lambda tls: tls.tls("LOGIN"),
        NotAuthenticated,
        "asks for a login, but the connection has none (it offers PLAIN, SCRAM-SHA-512)",
        "sasl.username",
    ),
    "no login": (
        lambda tls: {"bootstrap.servers": tls.address("OPEN_LOGIN")},
        NotAuthenticated,
        "asks for a login",
        "security.protocol",
    ),
    "authority": (
        lambda tls: tls.tls(ssl_ca_location=tls.stranger.file),
        TlsFailed,
        "does not know the authority",
        "ssl.ca.location",
    ),
    "no authority": (
        lambda tls: {"bootstrap.servers": tls.address("TLS"), "security.protocol": "SSL"},
        TlsFailed,
        "does not know the authority",
        "ssl.ca.location",
    ),
    "expired": (lambda tls: tls.tls("EXPIRED"), TlsFailed, "certificate has expired", "renew"),
    "host name": (lambda tls: tls.tls("ELSEWHERE"), TlsFailed, "for another host name", "advertised.listeners"),
    "no client certificate": (
        lambda tls: tls.tls("MUTUAL"),
        TlsFailed,
        "asks for a client certificate",
        "ssl.certificate.location",
    ),
    "client certificate of a stranger": (
        lambda tls: with_certificate(tls, "stranger"),
        TlsFailed,
        "refuses the client's certificate",
        "trust store",
    ),
    "TLS to plaintext": (
        lambda tls: tls.tls("PLAINTEXT"),
        TlsFailed,
        "speaks no TLS, but the connection wants it",
        "PLAINTEXT",
    ),
    "plaintext to TLS": (
        lambda tls: {"bootstrap.servers": tls.address("TLS")},
        TlsFailed,
        "speaks TLS, but the connection does not",
        "security.protocol to SSL",
    ),
    "plaintext login to TLS": (
        lambda tls: tls.login(security_protocol="SASL_PLAINTEXT"),
        TlsFailed,
        "speaks TLS",
        "SASL_SSL",
    ),
    "no such file": (
        lambda tls: tls.tls(ssl_ca_location="/no/such/ca.pem"),
        TlsFailed,
        "ssl.ca.location names the file /no/such/ca.pem, which does not exist",
        "put the file",
    ),
    "no such host": (
        lambda tls: {**tls.tls(), "bootstrap.servers": NOWHERE},
        NotResolved,
        "host name is not known",
        "bootstrap.servers",
    ),
}


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
    assert seconds < PATIENCE / 4


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
    started = time.monotonic()
    with pytest.raises(NotAuthenticated, match="refuses the login of 'reader' by SCRAM-SHA-512"):
        offsets.high_watermarks(admin, [TopicPartition("waiting", 0)])
    print(f"admin: {time.monotonic() - started:.1f} s")


class Secured(Addresses):
    """The target asks for a login."""

    def __init__(self, source: str, target: Settings) -> None:
        super().__init__(source, str(target["bootstrap.servers"]))
        object.__setattr__(self, "_target", target)

    def kafka(self, connection_id: str) -> Settings:
        return dict(self._target) if connection_id == "target" else super().kafka(connection_id)  # type: ignore[attr-defined]


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
        runner.run(scene.replication(), connections, scene.store, lambda: launcher, Request())
    print(f"run: {time.monotonic() - changed[0]:.1f} s after the change: {caught.value}")
    healed = Secured(scene.source.bootstrap, tls.scram(scene.name, "second"))
    report = runner.run(scene.replication(), healed, scene.store, InProcess, Request())
    assert report.outcome == "done", report.table()
    assert scene.watermark() == 100
