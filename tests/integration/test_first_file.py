"""``kafka-replication init`` on real clusters: what it asks, what it writes, and what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.support.clusters import Brokers
from tests.support.programs import ROOT
from tests.support.scenario import Rec, Scenario


@dataclass
class Person:
    """A terminal in an empty folder. ``extra`` is its environment."""

    folder: Path
    extra: dict[str, str]

    def types(self, answers: str, *arguments: str) -> tuple[int, str, str]:
        """The exit code, stdout and stderr of ``init`` with these lines as answers."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_CONN_")}
        ended = subprocess.run(
            [sys.executable, "-m", "kafka_replication.cli", *(arguments or ("init",))],
            env={**environment, "PYTHONPATH": f"{ROOT}/plugins", **self.extra},
            cwd=self.folder,
            input=answers,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in ended.stderr, ended.stderr
        return ended.returncode, ended.stdout, ended.stderr


@pytest.fixture
def person(scene: Scenario, tmp_path: Path, source_cluster: Brokers, target_cluster: Brokers) -> Person:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, [Rec(b"k", b"v")])
    sides = {"SOURCE": source_cluster.bootstrap, "TARGET": target_cluster.bootstrap}
    connections = {
        f"AIRFLOW_CONN_KAFKA_{side}": json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": address}})
        for side, address in sides.items()
    }
    return Person(tmp_path, {**connections, "KAFKA_REPLICATION_STORE_URL": f"sqlite:///{tmp_path}/of-init.db"})


def test_the_answers_become_a_file_that_runs(person: Person, scene: Scenario) -> None:
    (person.folder / "dags" / "replications").mkdir(parents=True)
    lines = [scene.name, "", "", scene.topic, "dr.{topic}", "*/15 * * * *"]
    code, out, err = person.types("\n".join(lines) + "\n")
    assert code == 0, err
    file = person.folder / "dags" / "replications" / f"{scene.name}.yaml"
    assert f"written to {file.relative_to(person.folder)}" in out and scene.topic in err
    assert yaml.safe_load(file.read_text()) == {
        "name": scene.name,
        "source": {"connection": "kafka_source"},
        "target": {"connection": "kafka_target"},
        "topics": {"include": [scene.topic], "rename": "dr.{topic}"},
        "schedule": "*/15 * * * *",
    }
    assert not (person.folder / "of-init.db").exists()
    code, _, err = person.types("", "check", str(file))
    assert code == 0, err
    before = file.read_text()
    code, _, err = person.types(f"{scene.name}\n")
    assert (code, file.read_text()) == (2, before) and "is there already" in err


def test_a_connection_that_is_not_defined_is_asked_for(person: Person, scene: Scenario) -> None:
    definition = person.extra.pop("AIRFLOW_CONN_KAFKA_TARGET")
    address = json.loads(definition)["extra"]["bootstrap.servers"]
    given = ("--name", scene.name, "--topics", scene.topic, "--rename", "{topic}", "--schedule", "")
    code, _, err = person.types(f"\n\n{address}\n", "init", *given)
    assert code == 0, err
    assert f"export AIRFLOW_CONN_KAFKA_TARGET='{definition}'" in err
    assert "schedule" not in (person.folder / f"{scene.name}.yaml").read_text()


def test_one_cluster_on_both_sides_is_offered_another_name(person: Person, scene: Scenario) -> None:
    person.extra["AIRFLOW_CONN_KAFKA_TARGET"] = person.extra["AIRFLOW_CONN_KAFKA_SOURCE"]
    code, out, err = person.types(
        "\n\n\n", "init", "--name", scene.name, "--topics", f"^{scene.topic}$", "--schedule", ""
    )
    assert code == 0, err
    assert "rename: copy.{topic}" in out


@pytest.mark.parametrize(
    ("options", "answers", "code", "said"),
    [
        pytest.param(("--name", "x.audit"), "\n\nt\n\n\n", 2, "key 'name'", id="a name that is none"),
        pytest.param(("--name", "x", "--topics", "a,b"), "\n\n\n\n", 2, "'a,b'", id="topics that are none"),
        pytest.param(
            ("--name", "x", "--topics", "not-there"), "\n\n\n\n", 1, "not-there", id="a topic that is not there"
        ),
        pytest.param(("--name", "x"), "\n", 2, "give it as --target", id="no answer"),
        pytest.param(("missing-folder",), "x\n", 2, "is not a folder", id="no folder"),
    ],
)
def test_what_cannot_work_is_named_and_nothing_is_written(
    person: Person, options: tuple[str, ...], answers: str, code: int, said: str
) -> None:
    ended, out, err = person.types(answers, "init", *options)
    assert (ended, out) == (code, ""), err
    assert said in err
    assert not list(person.folder.rglob("*.yaml"))


@pytest.mark.slow  # `test_unreachable.py` has the error, and what fails above writes nothing
def test_a_cluster_that_does_not_answer_is_named_at_once(person: Person) -> None:
    away = json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:1"}})
    person.extra["AIRFLOW_CONN_KAFKA_TARGET"] = away
    code, _, err = person.types("\n\n", "init", "--name", "x")
    assert code == 1 and "127.0.0.1:1" in err and "remedy:" in err
    assert not list(person.folder.rglob("*.yaml"))
