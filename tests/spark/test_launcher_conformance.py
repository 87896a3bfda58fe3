"""Real Spark, submitted from a terminal, keeps what every launcher has to keep."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from kafka_replication.connections import SparkConnection
from kafka_replication.runtime import failpoints
from kafka_replication.spark.launcher import Launcher, terminal_launcher
from tests.contract.launcher.conformance import (
    Subject,
    check_audits,
    check_launcher,
    check_names_what_is_missing,
    range_job,
)
from tests.spark.pythons import python_without
from tests.support.leases import holder_of
from tests.support.scenario import Scenario, numbered
from tests.support.waiting import wait_until


def launcher() -> Launcher:
    return terminal_launcher(lambda: SparkConnection("local[2,4]", {}), {})


@contextmanager
def killing(at: str) -> Iterator[None]:
    """The workers inherit it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(failpoints.VARIABLE, f"W@{at}")
        yield


def test_the_submit_launcher_conforms(scene: Scenario) -> None:
    check_launcher(Subject(launcher, killing), scene)


@pytest.mark.slow
def test_the_submit_launcher_conforms_in_audits(scene: Scenario) -> None:
    check_audits(Subject(launcher, killing), scene)


@pytest.mark.slow
def test_partitions_are_verified_and_advanced_while_another_is_still_at_work(
    scene: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of three stands still; watermarks and outcomes of the other two are in the store before it goes on."""
    scene.source.create(scene.topic, 3)
    for partition in range(3):
        scene.source.produce(scene.topic, numbered(300 - partition), partition)  # the one that stands still is first
    gate = scene.folder / "gate"
    gate.touch()
    monkeypatch.setenv(failpoints.VARIABLE, f"W@{scene.topic}-0={gate}")
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(scene.run, launcher())
        try:
            wait_until(lambda: run.done() or (scene.watermark(1), scene.watermark(2)) == (299, 298))
            assert not run.done()
            assert scene.watermark(0) in (None, 0) and scene.target.size(scene.topic) < 2 * 300
            lease = holder_of(scene.store, scene.name)
            assert lease is not None
            outcomes = {each.key.source.partition: each.error for each in scene.store.outcomes(lease.owner)}
            assert outcomes == {1: None, 2: None}
        finally:
            gate.unlink()
        assert run.result().outcome == "done"
    assert [scene.watermark(partition) for partition in range(3)] == [300, 299, 298]
    scene.assert_copied(0, 1, 2)


@pytest.mark.parametrize(
    "module", [pytest.param(name, marks=pytest.mark.slow) for name in ("confluent_kafka", "pydantic")]
)
def test_an_executor_without_a_module_is_named(scene: Scenario, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", str(python_without(module, scene.folder / "executor")))
    check_names_what_is_missing(launcher, range_job(scene), module)
