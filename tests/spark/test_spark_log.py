"""Where Spark's log goes on the command line if Spark does not start; `test_spark_jobs.py` has a run that ends well."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tests.support.command_line import command
from tests.support.scenario import Scenario, numbered


@pytest.fixture
def ready(scene: Scenario) -> Scenario:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(50))
    return scene


@pytest.fixture
def temporary(scene: Scenario) -> Path:
    folder = scene.folder / "temporary"
    folder.mkdir()
    return folder


def logs(folder: Path) -> list[Path]:
    return sorted(folder.glob("kafka-replication-*.log"))


BROKEN = {"conf": {"spark.driver.memory": "nonsense"}}


def test_it_is_named_when_spark_does_not_start(ready: Scenario, temporary: Path) -> None:
    ready.settings |= {"spark": BROKEN}
    code, out, err = command(ready, "run", "--json", TMPDIR=str(temporary))
    [file] = logs(temporary)
    assert code == 1 and ready.name in file.name
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert f"see Spark's log {file}" in json.loads(out)["remedy"]
    assert f"Spark's log: {file}" in err
    said = [line for line in file.read_text().splitlines() if line.strip()]
    assert said and not set(said) & set(err.splitlines()), "the log stays in its file"
    assert "-Xmxnonsense" in json.loads(out)["error"], "the cause is told"


@pytest.mark.slow
def test_it_goes_to_stderr_if_asked(ready: Scenario, temporary: Path) -> None:
    ready.settings |= {"spark": BROKEN}
    code, out, err = command(ready, "--verbose", "run", "--json", TMPDIR=str(temporary))
    assert code == 1 and "see Spark's log above" in json.loads(out)["remedy"]
    assert "nonsense" in err and logs(temporary) == []
