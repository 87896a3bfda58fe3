"""Real Spark, submitted from a terminal, keeps what every launcher has to keep."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kafka_replication.connections.port import SparkConnection
from kafka_replication.runtime import failpoints
from kafka_replication.spark.launcher import Launcher
from kafka_replication.spark.submit import terminal_launcher
from tests.contract.launcher.conformance import Subject, check_launcher, check_names_what_is_missing, copy_job
from tests.spark.pythons import python_without
from tests.support.scenario import Scenario


def launcher() -> Launcher:
    return terminal_launcher(SparkConnection("local[2,4]", {}), {})


@contextmanager
def killing(at: str) -> Iterator[None]:
    """The workers inherit it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(failpoints.VARIABLE, f"W@{at}")
        yield


def test_the_submit_launcher_conforms(scene: Scenario) -> None:
    check_launcher(Subject(launcher, killing), scene)


@pytest.mark.parametrize(
    "module", [pytest.param(name, marks=pytest.mark.slow) for name in ("confluent_kafka", "pydantic")]
)
def test_an_executor_without_a_module_is_named(scene: Scenario, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", str(python_without(module, scene.folder / "executor")))
    check_names_what_is_missing(launcher, copy_job(scene), module)
