"""Connections from the environment: the JSON form only, and every mistake named with its remedy."""

from __future__ import annotations

import json
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread

import pytest

from kafka_replication.connections import Definition, EnvironmentConnections, SparkConnection, variable
from kafka_replication.hbase.client import Client as HBaseClient
from kafka_replication.hbase.target import HBaseTarget
from kafka_replication.model.errors import BadInput, ConnectionMissing, Unexpected, Unreachable
from kafka_replication.opensearch.target import OpenSearchTarget, refusal_of

CONNECTIONS = EnvironmentConnections()
KAFKA = "AIRFLOW_CONN_KAFKA_SOURCE"
SPARK = "AIRFLOW_CONN_SPARK_DEFAULT"


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KAFKA, raising=False)
    monkeypatch.delenv(SPARK, raising=False)


SETTINGS = {"bootstrap.servers": "127.0.0.1:9092", "security.protocol": "PLAINTEXT"}


@pytest.mark.parametrize("extra", [SETTINGS, json.dumps(SETTINGS)], ids=["as an object", "as text"])
def test_the_extra_of_a_kafka_connection_is_its_client_settings(monkeypatch: pytest.MonkeyPatch, extra: object) -> None:
    monkeypatch.setenv(KAFKA, json.dumps({"conn_type": "kafka", "extra": extra}))
    assert CONNECTIONS.kafka("kafka_source") == SETTINGS


@pytest.mark.parametrize("value", [{}, {"extra": None}, {"extra": ""}])
def test_no_extra_is_no_settings(monkeypatch: pytest.MonkeyPatch, value: dict[str, object]) -> None:
    monkeypatch.setenv(KAFKA, json.dumps({"conn_type": "kafka", **value}))
    assert CONNECTIONS.kafka("kafka_source") == {}


SEARCH = {"conn_type": "opensearch", "host": "search", "port": 9200, "login": "me", "password": "secret"}


@pytest.mark.parametrize(
    ("more", "url"),
    [
        ({}, "http://search:9200"),
        ({"schema": "https"}, "https://search:9200"),
        ({"extra": {"use_ssl": True}}, "https://search:9200"),
        ({"host": "https://search", "port": None}, "https://search"),
    ],
)
def test_a_connection_of_another_type_has_a_url_and_a_login(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, object], url: str
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SEARCH", json.dumps({**SEARCH, **more}))
    found = CONNECTIONS.service("search", "opensearch")
    assert (found["url"], found["login"], found["password"]) == (url, "me", "secret")
    assert "secret" not in repr(Definition(connection_id="search", conn_type="opensearch", password="secret"))


@pytest.mark.parametrize("wrong", [{"conn_type": "kafka"}, {"host": ""}])
def test_a_connection_of_a_wrong_type_or_without_a_host_is_named(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[str, object]
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SEARCH", json.dumps({**SEARCH, **wrong}))
    with pytest.raises(ConnectionMissing, match="search"):
        CONNECTIONS.service("search", "opensearch")


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({}, "names no host"),
        ({"url": "http://search", "verify": False}, "'verify'"),
        ({"url": "http://search", "login": "me"}, "login without a password"),
        ({"url": "http://me:secret@search"}, "a login in its host"),
        ({"url": "http://search", "login": "me", "password": "secret", "api_key": "x"}, "a login and an api_key"),
        ({"url": "http://search", "verify_certs": "false"}, "verify_certs: 'false'"),
    ],
)
def test_settings_that_opensearch_does_not_have_are_refused(settings: dict[str, object], named: str) -> None:
    with pytest.raises(BadInput, match=named):
        OpenSearchTarget.checked("search", settings)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({}, "names no host"),
        ({"url": "https://gateway:9090"}, "asks for TLS"),
        ({"url": "http://gateway:9090", "use_ssl": True}, "asks for TLS"),
        ({"url": "http://gateway:9090", "login": "me"}, "'login': logins"),
        ({"url": "http://gateway:9090", "password": "secret"}, "'password': logins"),
        ({"url": "http://gateway:9090", "principal": "hbase/gateway"}, "'principal': logins"),
        ({"url": "http://gateway:9090", "sasl": "GSSAPI"}, "'sasl': logins"),
        ({"url": "http://gateway:9090", "verify": False}, "'verify'"),
        ({"url": "http://gateway:9090", "transport": "http"}, "transport is none of buffered, framed"),
    ],
)
def test_settings_that_hbase_does_not_have_are_refused(settings: dict[str, object], named: str) -> None:
    with pytest.raises(BadInput, match=named):
        HBaseTarget.checked("rows", settings)
    whole = {"url": "http://gateway:9090", "transport": "framed", "protocol": "compact"}
    assert HBaseTarget.checked("rows", whole) == whole


@pytest.mark.parametrize("answer", [b"", b"\x15\x03\x03\x00\x02\x02\x46", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
@pytest.mark.parametrize("more", [{}, {"protocol": "compact"}, {"transport": "framed"}])
def test_a_gateway_that_asks_for_what_is_not_there_is_named(answer: bytes, more: dict[str, str]) -> None:
    """It ends the connection, or answers with an alert of TLS, or by HTTP."""

    class Answers(BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1)
            self.request.sendall(answer)

    with ThreadingTCPServer(("127.0.0.1", 0), Answers) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        client = HBaseClient({"url": f"http://127.0.0.1:{server.server_address[1]}", **more}, 10)
        try:
            with pytest.raises((Unreachable, Unexpected), match=r"getThriftServerType") as raised:
                client.call("getThriftServerType")
        finally:
            server.shutdown()
    assert "asks for TLS, HTTP or a login (SASL)" in raised.value.remedy


@pytest.mark.parametrize(
    ("version", "refused"),
    [
        ({"distribution": "opensearch", "number": "2.19.6"}, None),
        ({"number": "7.17.29"}, None),
        ({"number": "7.9.3"}, "elasticsearch 7.9.3"),
        ({"number": "8.19.3"}, "elasticsearch 8.19.3"),
        ({}, "elasticsearch "),
    ],
)
def test_a_server_that_is_not_known_to_work_is_refused(version: dict[str, str], refused: str | None) -> None:
    assert refusal_of(version) == refused


def test_a_mistyped_id_is_told_the_nearest_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KAFKA, json.dumps({"conn_type": "kafka", "extra": SETTINGS}))
    with pytest.raises(ConnectionMissing, match="'kafka_sorce' is not defined, did you mean 'kafka_source'\\?"):
        CONNECTIONS.kafka("kafka_sorce")


WRONG: dict[str, tuple[str | None, str, str]] = {
    "missing": (
        None,
        "connection 'kafka_source' is not defined",
        "set AIRFLOW_CONN_KAFKA_SOURCE to its JSON form, see docs/connections.md; outside of Airflow, connections are"
        " read from such variables alone, not from Airflow's page",
    ),
    "URI form": (
        "kafka://user:secret@host:9092/?x=1",
        "AIRFLOW_CONN_KAFKA_SOURCE is not JSON (Expecting value: line 1 column 1 (char 0))",
        "use the JSON form, not the URI form, see docs/connections.md",
    ),
    "empty": (
        "",
        "AIRFLOW_CONN_KAFKA_SOURCE is not JSON (Expecting value: line 1 column 1 (char 0))",
        "use the JSON form, not the URI form, see docs/connections.md",
    ),
    "another type": (
        '{"conn_type": "spark"}',
        "connection 'kafka_source' is of type 'spark', not kafka",
        'give it the type "kafka"; see docs/connections.md',
    ),
    "no type": (
        '{"extra": {}}',
        "connection 'kafka_source' is of type None, not kafka",
        'give it the type "kafka"; see docs/connections.md',
    ),
    "no object": (
        '["kafka"]',
        "AIRFLOW_CONN_KAFKA_SOURCE is not a JSON object",
        "use the JSON form, see docs/connections.md",
    ),
    "extra that is no object": (
        '{"conn_type": "kafka", "extra": [1]}',
        "connection 'kafka_source': its extra is not a JSON object",
        "see docs/connections.md",
    ),
    "extra that is text of no object": (
        '{"conn_type": "kafka", "extra": "7"}',
        "connection 'kafka_source': its extra is not a JSON object",
        "see docs/connections.md",
    ),
    "extra that is no JSON": (
        '{"conn_type": "kafka", "extra": "{secret"}',
        "connection 'kafka_source': its extra is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        "see docs/connections.md",
    ),
}


@pytest.mark.parametrize(("text", "what", "remedy"), WRONG.values(), ids=WRONG)
def test_a_connection_that_cannot_be_used_is_refused(
    monkeypatch: pytest.MonkeyPatch, text: str | None, what: str, remedy: str
) -> None:
    if text is not None:
        monkeypatch.setenv(KAFKA, text)
    with pytest.raises(ConnectionMissing) as caught:
        CONNECTIONS.kafka("kafka_source")
    assert (caught.value.what, caught.value.remedy) == (what, remedy)
    assert isinstance(caught.value, BadInput)
    assert "secret" not in str(caught.value)


def test_the_variable_is_airflows() -> None:
    assert variable("kafka_source") == KAFKA


def test_without_a_spark_connection_it_is_this_machine_with_retries() -> None:
    assert CONNECTIONS.spark("spark_default") == SparkConnection("local[*,4]", {})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"host": "local"}, "local[*,4]"),
        ({"host": "local[*]"}, "local[*,4]"),
        ({"host": "local[2]"}, "local[2,4]"),
        ({"host": "local[2,3]"}, "local[2,3]"),
        ({"host": "yarn"}, "yarn"),
        ({"host": "spark://master", "port": 7077}, "spark://master:7077"),
        ({"host": "master", "port": 7077}, "spark://master:7077"),
        ({"conn_type": "k8s", "host": "https://api", "port": 6443}, "k8s://https://api:6443"),
        ({"host": "k8s://https://api:6443"}, "k8s://https://api:6443"),
    ],
)
def test_the_master_of_a_spark_connection(
    monkeypatch: pytest.MonkeyPatch, value: dict[str, object], expected: str
) -> None:
    monkeypatch.setenv(SPARK, json.dumps({"conn_type": "spark", **value}))
    assert CONNECTIONS.spark("spark_default").master == expected


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("spark://local[*]", "is not JSON"),
        ('{"conn_type": "kafka"}', "is of type 'kafka', not spark"),
        ('{"conn_type": "spark"}', "names no Spark master"),
        ('{"conn_type": "spark", "host": ""}', "names no Spark master"),
    ],
)
def test_a_spark_connection_that_cannot_be_used_is_refused_and_not_taken_for_missing(
    monkeypatch: pytest.MonkeyPatch, text: str, what: str
) -> None:
    monkeypatch.setenv(SPARK, text)
    with pytest.raises(ConnectionMissing, match=what):
        CONNECTIONS.spark("spark_default")


def test_what_the_provider_gives_to_spark_submit_is_a_setting_here(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"queue": "night", "namespace": "dr", "principal": "me", "keytab": "/k", "deploy-mode": "cluster"}
    monkeypatch.setenv(SPARK, json.dumps({"conn_type": "spark", "host": "yarn", "extra": extra}))
    assert CONNECTIONS.spark("spark_default").conf == {
        "spark.yarn.queue": "night",
        "spark.kubernetes.namespace": "dr",
        "spark.kerberos.principal": "me",
        "spark.kerberos.keytab": "/k",
    }
