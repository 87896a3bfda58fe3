"""Spark ends an application, or never takes it: the run ends soon, and says why."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from kafka_replication.connections import SparkConnection
from kafka_replication.model.errors import BadInput, Unreachable
from kafka_replication.spark.jobs import JobEnd
from kafka_replication.spark.launcher import terminal_launcher
from kafka_replication.spark.submit import TerminalSubmission
from kafka_replication.spark.training import job
from stack.ports import free_ports
from tests.spark.standalone_master import Master, standalone_master
from tests.support.command_line import command
from tests.support.scenario import Scenario, numbered
from tests.support.waiting import wait_until

RUNS = int(os.environ.get("MASTER_AWAY_RUNS", "1"))


def submit(spark: SparkConnection) -> JobEnd:
    """A job of two tasks, which are two Spark jobs at a time. No executor ever works on them."""
    with terminal_launcher(lambda: spark, {}) as launcher:
        return launcher.submit(job(), lambda results: pytest.fail(str(results)))


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Master]:
    """Without workers, so that Spark jobs wait."""
    with standalone_master(tmp_path, workers=0, secret="of-the-master") as made:
        yield made


def test_a_master_that_is_not_there_is_named_before_anything_is_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object) -> None:
        pytest.fail("spark-submit was called")

    monkeypatch.setattr(TerminalSubmission, "start", start)
    first, second = free_ports(2)
    before = psutil.Process().children(recursive=True)
    with pytest.raises(Unreachable, match="no Spark master answers") as error:
        submit(SparkConnection(f"spark://127.0.0.1:{first},127.0.0.1:{second}", {}))
    assert f"127.0.0.1:{first}" in error.value.what and f"127.0.0.1:{second}" in error.value.what
    assert "host and port of the Spark connection" in error.value.remedy
    assert psutil.Process().children(recursive=True) == before


@pytest.mark.slow
@pytest.mark.parametrize("number", range(RUNS))
def test_a_run_whose_master_is_not_there_ends_within_a_minute(scene: Scenario, number: int) -> None:
    scene.source.create(scene.topic, 2)
    for partition in range(2):
        scene.source.produce(scene.topic, numbered(10), partition)
    [port] = free_ports(1)
    away, began = {"conn_type": "spark", "host": "spark://127.0.0.1", "port": port}, time.monotonic()
    code, _, err = command(scene, "plan")
    assert code == 0, err
    planned = time.monotonic()
    code, _, err = command(scene, "run", AIRFLOW_CONN_SPARK_DEFAULT=json.dumps(away))
    plan, took = planned - began, time.monotonic() - planned
    print(f"plan {plan:.1f} s, run {took:.1f} s, exit {code}, load {os.getloadavg()[0]:.1f}")
    assert code != 0 and f"no Spark master answers: 127.0.0.1:{port}" in err and "Traceback" not in err, err
    assert took < 60 + plan  # which is what the machine is busy with


@pytest.mark.slow
def test_an_application_that_is_ended_on_the_masters_page_is_told_so(master: Master) -> None:
    with ThreadPoolExecutor(1) as pool:
        submitted = pool.submit(submit, master.connection)
        wait_until(lambda: submitted.done() or bool(master.applications()))
        master.end(*master.applications())
        end = submitted.result()
    assert end.error == "the Spark master ended the application: Master removed our application: KILLED"
    assert not end.retriable


@pytest.mark.slow
def test_a_master_that_goes_away_before_it_gave_an_executor_is_named(master: Master) -> None:
    with ThreadPoolExecutor(1) as pool:
        submitted = pool.submit(submit, master.connection)
        wait_until(lambda: submitted.done() or bool(master.applications()))
        master.process.kill()
        end = submitted.result()
    address = master.connection.master.removeprefix("spark://")
    assert f"no Spark master answers: {address}" in str(end.error) and end.retriable


@pytest.mark.slow
@pytest.mark.parametrize("changed", ["spark.authenticate.secret", "spark.authenticate"])
def test_a_secret_that_the_master_does_not_accept_is_named(master: Master, changed: str) -> None:
    conf = {**master.connection.conf, "spark.authenticate.secret": "another"}
    if changed == "spark.authenticate":
        del conf["spark.authenticate"], conf["spark.authenticate.secret"]
    with pytest.raises(BadInput, match="the Spark master does not let the application in") as error:
        submit(replace(master.connection, conf=conf))
    assert "spark.authenticate.secret" in error.value.remedy


@pytest.mark.slow  # `check --spark` tells the same of the first one
@pytest.mark.parametrize("python", ["/not/there/python", "/bin/false"])
def test_a_python_that_executors_cannot_start_is_named(python: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", python)
    end = submit(SparkConnection("local[2,4]", {}))
    assert "a Spark executor cannot start its Python" in str(end.error) and not end.retriable
    assert "PYSPARK_PYTHON" in end.remedy and "memory" not in end.remedy
