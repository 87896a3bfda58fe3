"""Real Spark, started as a user starts it, and killed piece by piece while it copies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from kafka_replication.runtime.events import Event
from tests.spark.installation import ROOT, build, files, install
from tests.spark.pythons import python_without
from tests.support.processes import command
from tests.support.scenario import Scenario, numbered
from tests.support.spark_run import KILLS, SparkRun, end_after, kill_only_the_run
from tests.support.waiting import wait_until

PARTITIONS, RECORDS = 4, 1_000
SMALL = {"chunk_records": 100}


@pytest.fixture
def ready(scene: Scenario) -> Scenario:
    scene.source.create(scene.topic, PARTITIONS)
    for partition in range(PARTITIONS):
        scene.source.produce(scene.topic, numbered(RECORDS), partition)
    return scene


def await_middle(scene: Scenario, run: SparkRun) -> None:
    """Until a worker is halted inside its third chunk: two are committed, far from all."""
    run.await_reached(
        lambda: scene.target.partitions(scene.topic) > 0 and scene.target.size(scene.topic) > 2 * SMALL["chunk_records"]
    )


def assert_complete(scene: Scenario) -> None:
    scene.assert_copied(*range(PARTITIONS))
    assert [scene.watermark(partition) for partition in range(PARTITIONS)] == [RECORDS] * PARTITIONS


def test_an_installed_wheel_copies_and_verifies(ready: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run of 4 partitions, where nothing but the wheel is installed; the next one starts no Spark. Spark's log is gone
    when all went well.
    """
    wheel = build(ready.folder / "wheel")
    assert files() - set(zipfile.ZipFile(wheel).namelist()) == set()
    installed = install(wheel, ready.folder / "environment")
    temporary = ready.folder / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    run = SparkRun(ready, installed=installed)
    report = run.end()
    said = (ready.folder / "stderr").read_text()
    assert "[progress]" in said and "[chunk-committed]" not in said and "SparkContext" not in said
    assert list(temporary.glob("kafka-replication-*.log")) == []
    assert report["outcome"] == "done", report
    assert sorted((each["partition"], each["copied"], each["digest_ok"]) for each in report["ranges"]) == [
        (partition, RECORDS, True) for partition in range(PARTITIONS)
    ]
    assert_complete(ready)
    run.assert_nothing_left()
    ready.idle_run()


@pytest.mark.slow  # rows of the faults; `test_launcher_conformance.py` kills a worker
@pytest.mark.parametrize("kill", [kill for kill in KILLS if kill is not kill_only_the_run])
def test_kill_while_copying(ready: Scenario, kill: Callable[[SparkRun], None]) -> None:
    ready.settings |= {"copy": SMALL}
    run = SparkRun(ready, halted=True)
    await_middle(ready, run)
    end_after(run, kill)
    ready.settings |= {"copy": {}}
    healed = ready.run()
    assert healed.outcome in ("done", "nothing_to_do"), healed.table()
    assert_complete(ready)
    ready.idle_run()


def assert_lean(driver: psutil.Process) -> None:
    """Spark's driver has not loaded what it never needs. Both packages are here, Airflow's providers bring them."""
    loaded = {mapped.path for mapped in driver.memory_maps()}
    assert not [path for path in loaded if "/numpy/" in path or "/pandas/" in path]


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_a_run_that_is_stopped_leaves_no_transaction_open(ready: Scenario, number: signal.Signals) -> None:
    """Whether the run is asked to end or is gone at once: Spark ends, and its workers abort what they have open."""
    ready.settings |= {"copy": SMALL | {"transaction_timeout": 600}}
    run = SparkRun(ready, halted=True)
    await_middle(ready, run)
    assert_lean(run.driver())
    assert all(" -c " in command(each) for each in run.workers()), "their modules were loaded before Spark had started"
    run.process.send_signal(number)
    run.end()
    assert run.process.returncode == (143 if number == signal.SIGTERM else -number)
    run.assert_nothing_left()
    wait_until(lambda: ready.is_settled(*range(PARTITIONS)))
    ready.settings |= {"copy": {}}
    healed = ready.run()
    assert healed.outcome == "done", healed.table()
    assert_complete(ready)


@pytest.mark.slow
def test_java_uses_the_class_data_archive_and_a_run_survives_one_that_was_cut_off(
    ready: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java 17 itself crashes on such an archive. Neither with it nor without does Java print a warning."""
    for name in ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(ready.folder / "cache"))
    subprocess.run([sys.executable, "-m", "kafka_replication.spark.training"], cwd=ROOT / "plugins", check=True)
    (archive,) = (ready.folder / "cache").rglob("*.jsa")
    ready.settings |= {"copy": SMALL}
    run = SparkRun(ready, halted=True)
    await_middle(ready, run)
    if Path("/proc/self/maps").exists():
        assert str(archive) in Path(f"/proc/{run.jvm().pid}/maps").read_text()
    run.go_on()
    assert run.end()["outcome"] == "done"
    run.assert_nothing_left()
    assert_complete(ready)

    os.truncate(archive, archive.stat().st_size // 2)
    ready.source.produce(ready.topic, numbered(10, first=RECORDS), 0)
    again = SparkRun(ready)
    report = again.end()
    again.assert_nothing_left()
    assert report["outcome"] == "done", report
    assert "[warning]" not in (errors := (ready.folder / "stderr").read_text()) and "[error" not in errors


@pytest.mark.slow  # `test_preloaded.py`, `test_dealer.py` and `test_reach.py` name it, and `check --spark` a Python that is none
def test_an_executor_without_a_module_ends_the_run(ready: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", str(python_without("xxhash", ready.folder / "executor")))
    run = SparkRun(ready)
    report = run.end()
    run.assert_nothing_left()
    assert report["outcome"] == "failed"
    assert len(report["ranges"]) == PARTITIONS
    for each in report["ranges"]:
        assert "cannot import xxhash" in each["error"], each["error"]
        assert sys.executable in each["error"]
        assert "install requirements.txt" in each["error"] and "PYSPARK_PYTHON" in each["error"]
    assert (ready.folder / "stderr").read_text().count(str(Event.COPY_ROUND_STARTED)) == 1, (
        "no further round can heal this"
    )
