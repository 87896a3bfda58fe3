"""One connection, read in three ways: in Airflow, on the command line, and by the providers' own hooks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.providers.apache.kafka.hooks.base import KafkaBaseHook
from airflow.providers.apache.spark.hooks import spark_submit

from kafka_replication.connections import Connections, EnvironmentConnections
from kafka_replication.kafka import callbacks
from kafka_replication.model.errors import BadInput, ConnectionMissing
from kafka_replication.orchestration.connections import AirflowConnections
from tests import oauth

SOURCES: list[Connections] = [AirflowConnections(), EnvironmentConnections()]
ALLOWLIST = "AIRFLOW__APACHE_KAFKA__CALLBACK_ALLOWLIST"
PLAIN = {"bootstrap.servers": "a:9092,b:9092", "client.id": "dr", "linger.ms": 5, "socket.keepalive.enable": True}
BEARER = {"bootstrap.servers": "a:9092", "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv(ALLOWLIST, raising=False)

    def define(allowed: str = "", **value: Any) -> None:
        monkeypatch.setenv("AIRFLOW_CONN_HERE", json.dumps(value))
        monkeypatch.setenv(ALLOWLIST, allowed)

    return define


def providers_settings() -> Any:
    return KafkaBaseHook("here")._build_config()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("extra", "allowed"),
    [
        (PLAIN, ""),
        (json.dumps(PLAIN), ""),
        ({**BEARER, "oauth_cb": oauth.PATH}, oauth.PATH),
        ({**BEARER, "oauth_cb": oauth.PATH, "error_cb": "builtins.print"}, f" builtins.print ,{oauth.PATH},"),
    ],
)
def test_a_kafka_connection(connect: Any, extra: object, allowed: str) -> None:
    connect(allowed, conn_type="kafka", extra=extra)
    found = [connections.kafka("here") for connections in SOURCES]
    assert found[0] == found[1] == (json.loads(extra) if isinstance(extra, str) else extra)
    assert json.loads(json.dumps(found[0])) == found[0], "settings travel to Spark as JSON"
    assert callbacks.resolved(found[0]) == providers_settings()


@pytest.mark.parametrize("allowed", ["", "builtins.print", f"{oauth.PATH}s"])
def test_a_callback_that_is_not_allowed(connect: Any, allowed: str) -> None:
    connect(allowed, conn_type="kafka", extra={**BEARER, "oauth_cb": oauth.PATH})
    with pytest.raises(ValueError, match="Refusing to resolve"):
        providers_settings()
    for connections in SOURCES:
        with pytest.raises(BadInput, match=r"'here' sets oauth_cb to .* not an allowed callback") as refused:
            connections.kafka("here")
        assert ALLOWLIST in refused.value.remedy


@pytest.mark.parametrize(
    "value",
    [
        {"conn_type": "http", "extra": PLAIN},
        {"conn_type": "kafka", "extra": "[1]"},
        {"conn_type": "kafka", "extra": "{x"},
    ],
)
def test_a_kafka_connection_that_is_none(connect: Any, value: dict[str, Any]) -> None:
    connect(**value)
    said = []
    for connections in SOURCES:
        with pytest.raises(ConnectionMissing) as refused:
            connections.kafka("here")
        said.append(str(refused.value))
    assert said[0] == said[1]


@pytest.mark.parametrize(
    ("value", "master"),
    [
        ({"host": "master", "port": 7077}, "spark://master:7077"),
        ({"host": "spark://master", "port": 7077}, "spark://master:7077"),
        ({"host": "spark://a:7077,b:7077"}, "spark://a:7077,b:7077"),
        ({"host": "yarn", "extra": {"queue": "night"}}, "yarn"),
        ({"host": "k8s://https://kube", "port": 443}, "k8s://https://kube:443"),
        ({"conn_type": "k8s", "host": "https://kube", "port": 443}, "k8s://https://kube:443"),
        ({"host": "local"}, "local"),
        ({"host": "local[*]"}, "local[*]"),
        ({"host": "local[2,3]"}, "local[2,3]"),
    ],
)
def test_a_spark_connection(connect: Any, monkeypatch: pytest.MonkeyPatch, value: dict[str, Any], master: str) -> None:
    monkeypatch.setattr(spark_submit, "kube_client", object(), raising=False)  # an extra that is not installed here
    connect(**{"conn_type": "spark", **value})
    found = [connections.spark("here") for connections in SOURCES]
    assert found[0] == found[1]
    assert spark_submit.SparkSubmitHook(conn_id="here")._connection["master"] == master
    attempts = {"local": "local[*,4]", "local[*]": "local[*,4]"}
    assert found[0].master == attempts.get(master, master), "only a local master differs: it gets a number of attempts"


@pytest.mark.parametrize(
    "value", [{"conn_type": "spark"}, {"conn_type": "spark", "host": ""}, {"conn_type": "http", "host": "a"}]
)
def test_a_spark_connection_that_is_none(connect: Any, value: dict[str, Any]) -> None:
    connect(**value)
    said = []
    for connections in SOURCES:
        with pytest.raises(ConnectionMissing) as refused:
            connections.spark("here")
        said.append(str(refused.value))
    assert said[0] == said[1]
