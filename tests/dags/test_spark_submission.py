"""What is handed to spark-submit: settings and file names, never a secret."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from kafka_replication.config import Replication
from kafka_replication.model.errors import BadInput, ConnectionMissing
from kafka_replication.orchestration.connections import AirflowConnections
from kafka_replication.orchestration.spark_hook import HookSubmission
from kafka_replication.spark import submit
from kafka_replication.spark.local import DAEMON
from kafka_replication.spark.workspace import workspace

ON_EVERY_START = (
    "WARNING: Using incubator modules: jdk.incubator.vector",
    "Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties",
    "26/11/24 10:29:44 WARN Utils: Your hostname, vm, resolves to a loopback address: 127.0.0.1; using 192.0.2.2 instead"
    " (on interface eth0)",
    "26/11/24 10:29:44 WARN Utils: Set SPARK_LOCAL_IP if you need to bind to another address",
    "26/11/24 10:29:46 WARN NativeCodeLoader: Unable to load native-hadoop library for your platform... using"
    " builtin-java classes where applicable",
    "26/11/24 10:29:50 INFO SparkContext: Running Spark version 4.2.0",
    "26/11/24 10:29:50 INFO SparkContext: OS info Linux, 6.18.44, amd64",
    "26/11/24 10:29:50 INFO SparkContext: Java version 17.0.15",
    'Setting Spark log level to "WARN".',
)
FAILURE = "26/11/24 10:29:54 WARN StandaloneAppClient$ClientEndpoint: Failed to connect to master 127.0.0.1:1"
SECRET = "do-not-show-me"
REPLICATION = Replication.model_validate(
    {
        "name": "orders-dr",
        "source": {"connection": "here"},
        "target": {"connection": "there"},
        "topics": {"include": ["orders"]},
        "spark": {"conf": {"spark.executor.memory": "2g"}},
    }
)


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Any:
    def define(name: str, **value: Any) -> None:
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(value))

    return define


def command() -> list[str]:
    """The command line of spark-submit."""
    with workspace() as files:
        made = HookSubmission(REPLICATION).hook(files, "kafka-replication orders-dr")
        return list(made._build_spark_submit_command(str(submit.script())))


def test_no_secret_is_on_the_command_line(connect: Any) -> None:
    connect("here", conn_type="kafka", extra={"bootstrap.servers": "broker:9092", "sasl.password": SECRET})
    connect("spark_default", conn_type="spark", host="local[*]", extra={"deploy-mode": "cluster"})
    argv = command()
    assert SECRET not in " ".join(argv)
    assert argv[argv.index("--master") + 1] == "local[*,4]"
    assert argv[argv.index("--deploy-mode") + 1] == "client"
    assert "spark.executorEnv.MALLOC_ARENA_MAX=2" in argv
    assert {"spark.driver.bindAddress=127.0.0.1", "spark.log.level=WARN", "spark.executor.memory=2g"} <= set(argv)


def test_what_spark_says_on_every_start_is_not_in_the_log_of_a_task(
    connect: Any, caplog: pytest.LogCaptureFixture
) -> None:
    connect("spark_default", conn_type="spark", host="local[*]")
    lines, heard = [*ON_EVERY_START, FAILURE], list[str]()
    with caplog.at_level(logging.INFO), workspace() as files:
        hook = HookSubmission(REPLICATION).hook(files, "kafka-replication orders-dr")
        of_the_task: Any = logging.getLogger("of-the-task")
        hook._log, hook._hear = of_the_task, heard.append
        hook._build_spark_submit_command(str(submit.script()))
        hook._process_spark_submit_log(iter(lines))
    assert [record.getMessage() for record in caplog.records] == [FAILURE]
    assert heard == lines


def test_only_a_cluster_gets_the_package_as_a_zip(connect: Any) -> None:
    connect("spark_default", conn_type="spark", host="local[2]")
    assert "--py-files" not in command()
    assert f"spark.python.daemon.module={DAEMON}" in command()
    connect("spark_default", conn_type="spark", host="spark://master", port=7077)
    assert "--py-files" in command()
    assert DAEMON not in " ".join(command())


@pytest.mark.parametrize(
    ("connection", "master"),
    [
        ({"conn_type": "spark", "host": "local[2]"}, "local[2,4]"),
        ({"conn_type": "spark", "host": "spark://master", "port": 7077}, "spark://master:7077"),
        ({"conn_type": "spark", "host": "master", "port": 7077}, "spark://master:7077"),
        ({"conn_type": "spark", "host": "yarn"}, "yarn"),
        ({"conn_type": "spark", "host": "k8s://https://kube", "port": 443}, "k8s://https://kube:443"),
    ],
)
def test_the_master_is_what_the_provider_makes_of_the_connection(
    connect: Any, connection: dict[str, Any], master: str
) -> None:
    connect("spark_default", **connection)
    assert AirflowConnections().spark("spark_default").master == master


def test_a_spark_binary_that_the_provider_does_not_allow_is_bad_input(connect: Any) -> None:
    connect("here", conn_type="kafka", extra={"bootstrap.servers": "broker:9092"})
    connect("spark_default", conn_type="spark", host="local[*]", extra={"spark-binary": "/bin/sh"})
    with pytest.raises(BadInput, match="spark-binary"):
        command()


def test_a_connection_that_is_none_is_named(connect: Any) -> None:
    with pytest.raises(ConnectionMissing, match="'nowhere' is not defined"):
        AirflowConnections().kafka("nowhere")
    connect("here", conn_type="http")
    with pytest.raises(ConnectionMissing, match="'http', not kafka"):
        AirflowConnections().kafka("here")
    connect("spark_default", conn_type="spark")
    with pytest.raises(ConnectionMissing, match="names no Spark master"):
        AirflowConnections().spark("spark_default")
