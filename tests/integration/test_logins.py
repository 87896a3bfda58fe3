"""Logins and certificates of the batch engine's connections, beside those of the record engine's client: on the same
listeners, with the same settings.
"""

from __future__ import annotations

import itertools
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from kafka_replication.connections import ALLOWLIST_VARIABLE, EnvironmentConnections
from kafka_replication.kafka import clients, reachability
from kafka_replication.kafka.batch_scan import connect
from kafka_replication.kafka.brokers import security_of
from kafka_replication.model.errors import BadInput, NotAuthenticated, ReplicationError, TlsFailed, Unreachable
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.runs.run import Request
from kafka_replication.runtime.deadline import Deadline
from kafka_replication.spark.jobs import JOB, Job, JobEnd
from kafka_replication.spark.launcher import Deliver
from kafka_replication.wire import fetching
from kafka_replication.wire.batch import batches as read_batches
from kafka_replication.wire.connection import Connection
from tests.support import whole_runs
from tests.support.jobs import InProcess, no_launch
from tests.support.scenario import Cluster, Rec, Scenario, numbered
from tests.support.tls import SESSION, TlsCluster, tls_cluster
from tests.support.token_endpoint import SECRET, Endpoint, token_endpoint

Settings = dict[str, Any]
TOPIC = TopicPartition("logins", 0)


class World:
    """The cluster, and a provider of tokens with TLS."""

    current: World

    def __init__(self, tls: TlsCluster, endpoint: Endpoint, folder: Path) -> None:
        self.tls, self.endpoint, self.folder = tls, endpoint, folder

    def oidc(self, **more: str) -> Settings:
        trust = {"https.ca.pem": self.tls.authority.file.read_text()}
        return {**self.tls.bearer(), **self.endpoint.settings(**more), **trust}

    def callback(self, name: str) -> Settings:
        return {**self.tls.bearer(), "oauth_cb": f"{__name__}.{name}"}

    def mutual(self, **more: object) -> Settings:
        return self.tls.tls("MUTUAL", **more)

    def store(self) -> Path:
        """The key and certificate of a client as PKCS#12."""
        own = self.tls.authority.issue("own").read_bytes()
        key, certificate = serialization.load_pem_private_key(own, None), x509.load_pem_x509_certificate(own)
        closed = serialization.BestAvailableEncryption(b"password")
        file = self.folder / "own.p12"
        file.write_bytes(pkcs12.serialize_key_and_certificates(b"own", key, certificate, None, closed))  # type: ignore[arg-type]
        return file

    def texts(self) -> Settings:
        """A certificate and its key as texts; each one has both, and each reader finds its part."""
        own = self.tls.authority.issue("own").read_text()
        return self.mutual(ssl_certificate_pem=own, ssl_key_pem=own)


def good_token(_: object) -> tuple[str, float]:
    return World.current.tls.issuer.token(), time.time() + 600


def token_for_somebody_else(_: object) -> tuple[str, float]:
    return World.current.tls.issuer.token(aud="other"), time.time() + 600


def no_token(_: object) -> tuple[str, float]:
    raise OSError("no route to the provider")


@pytest.fixture(scope="module", autouse=True)
def world(stack_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with tls_cluster(stack_folder) as tls:
        answer = lambda: {"access_token": tls.issuer.token()}  # noqa: E731
        with token_endpoint(answer, tls.authority.issue("provider")) as endpoint:
            Cluster(tls.cluster.bootstrap).create(TOPIC.topic)
            World.current = World(tls, endpoint, tmp_path_factory.mktemp("logins"))
            yield World.current


Way = Callable[[World], Settings]
RIGHT: dict[str, Way] = {
    "OIDC": lambda it: it.oidc(scope="read", extensions="cluster=one"),
    "callback": lambda it: it.callback("good_token"),
    "texts": World.texts,
    "PKCS#12": lambda it: it.mutual(ssl_keystore_location=it.store(), ssl_keystore_password="password"),
    "authority as text": lambda it: (
        {**it.tls.login(), "ssl.ca.location": "probe", "ssl.ca.pem": it.tls.authority.file.read_text()}
    ),
    "nothing revoked": lambda it: it.tls.tls(ssl_crl_location=it.tls.authority.revoked()),
    "cipher": lambda it: it.tls.tls(ssl_cipher_suites="ECDHE-ECDSA-AES256-GCM-SHA384"),
}
# What both clients say, and a word of what they advise.
WRONG: dict[str, tuple[Way, type[ReplicationError], str, str]] = {
    "client of the provider": (
        lambda it: it.oidc(**{"client.id": "nobody"}),
        NotAuthenticated,
        "gives no token to nobody: status 401, invalid_client",
        "client.secret",
    ),
    "token for somebody else": (
        lambda it: it.callback("token_for_somebody_else"),
        NotAuthenticated,
        "refuses the (login of the )?token",
        "oauth_cb",
    ),
    "function that fails": (
        lambda it: it.callback("no_token"),
        Unreachable,
        "oauth_cb gives no token: OSError: no route to the provider",
        "correct oauth_cb",
    ),
    "revoked": (
        lambda it: it.tls.tls(ssl_crl_location=it.tls.authority.revoked(it.tls.certificate)),
        TlsFailed,
        "certificate (is )?revoked",
        "",
    ),
}
# One of each kind of login; the others are slow.
OFTEN = {"OIDC", "callback", "PKCS#12", "client of the provider", "token for somebody else", "revoked"}


def ways(of: Iterable[str]) -> list[object]:
    return [way if way in OFTEN else pytest.param(way, marks=pytest.mark.slow) for way in of]


def batch_client(settings: Settings) -> Connection:
    """A connection to the one broker of this listener."""
    host, _, port = settings["bootstrap.servers"].partition(":")
    return Connection(host, int(port), security_of(settings), 20.0)


def end_of_topic(connection: Connection) -> int | None:
    return fetching.end_of_epoch(connection, TOPIC.topic, TOPIC.partition, 0)


@pytest.mark.parametrize("way", ways(RIGHT))
def test_both_clients_get_in(world: World, way: str) -> None:
    settings = RIGHT[way](world)
    assert TOPIC.topic in clients.admin(settings).list_topics(timeout=20).topics
    with connect(settings, TOPIC, 20.0) as connection:
        assert end_of_topic(connection) is not None


@pytest.mark.parametrize("way", ways(WRONG))
def test_no_client_gets_in(world: World, way: str) -> None:
    settings_of, kind, said, advice = WRONG[way]
    settings = settings_of(world)
    with pytest.raises(kind, match=said) as caught:
        batch_client(settings)
    with pytest.raises(kind, match=said) as of_records:
        reachability.check("source", settings, TOPIC, 5.0, Deadline.after(60.0))  # three times
    for error in (caught.value, of_records.value):
        assert SECRET not in str(error) and "eyJ" not in str(error)
        assert advice in error.remedy
    with pytest.raises(ReplicationError):
        clients.admin(settings, 2.0)


def test_connections_share_one_token(world: World) -> None:
    settings = world.oidc(scope="shared")
    world.endpoint.bodies.clear()
    with ThreadPoolExecutor(4) as threads:
        for connection in threads.map(lambda _: batch_client(settings), range(4)):
            connection.close()
    assert len(world.endpoint.bodies) == 1


def reads_on(settings: Settings, batches: int, seconds: float) -> None:
    """Three requests are under way all the time, and are answered in their order."""
    asked, until = deque[int](), time.monotonic() + seconds
    with batch_client(settings) as connection:
        for offset in itertools.cycle(range(batches)):
            fetching.ask(connection, TOPIC.topic, TOPIC.partition, offset, 1, 0.01)
            asked.append(offset)
            if len(asked) == 3:
                data, _ = fetching.answer(connection)
                assert data is not None
                assert next(iter(read_batches(memoryview(data.records or b"")))).base_offset == asked.popleft()
            if time.monotonic() > until:
                return
            time.sleep(0.005)


def asks_late(settings: Settings, seconds: float) -> None:
    with batch_client(settings) as connection:
        time.sleep(seconds)
        assert end_of_topic(connection) is not None


def test_a_connection_outlives_its_sessions(world: World) -> None:
    """The broker closes a connection that asks something else after the end of its session."""
    seconds = 1.75 * SESSION
    cluster = Cluster(world.tls.cluster.bootstrap)
    for number in range(4):
        cluster.produce(TOPIC.topic, numbered(1, number))
    scram = {**world.tls.scram("reader", "password"), **world.tls.tls("BEARER"), "security.protocol": "SASL_SSL"}
    with ThreadPoolExecutor(3) as threads:
        reading = [threads.submit(reads_on, settings, 4, seconds) for settings in (world.oidc(), scram)]
        late = threads.submit(asks_late, world.callback("good_token"), seconds)
        for done in (*reading, late):
            done.result(60)


class AsSpark(InProcess):
    """Each job crosses to another process as JSON."""

    def submit(self, job: Job, deliver: Deliver) -> JobEnd:
        return super().submit(JOB.validate_json(JOB.dump_json(job)), deliver)


@pytest.fixture
def connections(world: World, scene: Scenario, monkeypatch: pytest.MonkeyPatch) -> EnvironmentConnections:
    """The target's connection names the function of its tokens by a dotted path."""
    target = world.callback("good_token")
    for side, extra in {"source": {"bootstrap.servers": scene.source.bootstrap}, "target": target}.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{side.upper()}", json.dumps({"conn_type": "kafka", "extra": extra}))
    monkeypatch.setenv(ALLOWLIST_VARIABLE, target["oauth_cb"])
    scene.source.create(scene.topic)
    return EnvironmentConnections()


def test_a_run_logs_in_with_the_tokens_of_the_named_function_and_outlives_its_sessions(
    scene: Scenario, connections: EnvironmentConnections, caplog: pytest.LogCaptureFixture
) -> None:
    """Its producer's batches, and the requests of its transactions, go over connections whose sessions end."""
    sixteen = 16 << 10  # four batches are fetched at a time
    scene.source.produce(scene.topic, [Rec(b"%d" % number, b"v" * sixteen) for number in range(20)], batch_size=sixteen)
    limit = 20 * sixteen / (2 * SESSION)
    copy = {"engine": "batch", "chunk_records": 10, "throughput_limit": int(limit)}
    report = whole_runs.run(scene.replication(copy=copy), connections, scene.store, AsSpark(), Request())
    assert report.outcome == "done", report.table()
    assert [line for line in caplog.messages if "attempt" in line or "cannot copy" in line] == []
    assert sum(each.copied for each in report.ranges) == scene.watermark() == 20


def test_a_function_that_nobody_allowed_is_never_called(
    scene: Scenario, connections: EnvironmentConnections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ALLOWLIST_VARIABLE)
    with pytest.raises(BadInput, match="not an allowed callback"):
        whole_runs.run(scene.replication(), connections, scene.store, no_launch, Request())
