"""The wheel in an empty environment, with what its own metadata asks for: alone, in Airflow, and beside the oldest Airflow."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tomllib
import zipfile
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.requirements import Requirement

from tests.spark.installation import ROOT, UV, build, distributed, files, resolve, wheel_of
from tests.support.scenario import Scenario

DAGS = """
import json, runpy, sys
from airflow.sdk import DAG
print(json.dumps(sorted(name for name, value in runpy.run_path(sys.argv[1]).items() if isinstance(value, DAG))))
"""
PAGES = """
from kafka_replication.orchestration.page_app import app
print(*(route.path for route in app().routes))
"""
# The first release of the range, and a day on which it was the newest: it does not run with all younger packages.
OLDEST, ITS_DAY = "3.2.0", "2026-04-10"


class Installed:
    """The programs of an environment, on the files and the store of a scene."""

    def __init__(self, scene: Scenario, programs: Path) -> None:
        scene.source.create(scene.topic, 1)
        self.scene, self.programs = scene, programs
        self.files: Final = scene.folder / "dags" / "replications"
        self.files.mkdir(parents=True)
        (self.files / f"{scene.name}.yaml").write_text(json.dumps(scene.document()))
        sides = {"SOURCE": scene.source, "TARGET": scene.target}
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            **{
                f"AIRFLOW_CONN_{name}": json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": of.bootstrap}})
                for name, of in sides.items()
            },
            "KAFKA_REPLICATION_STORE_URL": scene.store_url,
            "AIRFLOW_HOME": str(scene.folder / "airflow"),
        }

    def said(self, program: str, *arguments: str, code: int = 0) -> str:
        command, folder = [str(self.programs / program), *arguments], self.scene.folder
        done = subprocess.run(command, env=self.environment, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def listed(self, *arguments: str) -> list[dict[str, Any]]:
        """What Airflow's command line lists."""
        found: list[dict[str, Any]] = json.loads(self.said("airflow", *arguments, "--output", "json").splitlines()[-1])
        return found

    def check(self) -> str:
        """The document of `check`, which has an error: there is no Spark here."""
        checked = self.said("kafka-replication", "check", str(self.files / f"{self.scene.name}.yaml"), "--json", code=1)
        assert "pip install 'kafka-replication[spark]'" in checked
        return checked

    def shows_itself_in_airflow(self) -> None:
        """The provider, the plugin, and all DAGs by one import in one file."""
        assert "kafka-replication" in self.said("airflow", "providers", "list")
        assert {"hbase", "opensearch"} <= {hook["connection_type"] for hook in self.listed("providers", "hooks")}
        plugins = self.listed("plugins")
        assert [each["fastapi_apps"] != [] for each in plugins if each["name"] == "kafka_replication"] == [True]
        assert "/replications/{name}" in self.said("python", "-c", PAGES)
        dag_file = shutil.copy(ROOT / "dags" / "kafka_replication_dags.py", self.files.parent)
        found = json.loads(self.said("python", "-c", DAGS, str(dag_file)).splitlines()[-1])
        kinds = ("", ".audit", ".backfill", ".drill", ".failed", ".repair", ".turn")
        own = (f"{self.scene.name}{kind}" for kind in kinds)
        assert found == sorted([*own, "replications.watch"])


@pytest.mark.slow  # it downloads Airflow
def test_the_wheel_goes_into_an_empty_environment_and_then_into_airflow(scene: Scenario) -> None:
    wheel, environment = build(scene.folder / "wheel"), scene.folder / "environment"
    installed = Installed(scene, resolve(environment, str(wheel)))
    assert "replicat" in installed.said("kafka-replication", "--help")
    assert "kafka-replication[airflow]" not in installed.check()
    resolve(environment, f"{wheel}[airflow]")
    installed.shows_itself_in_airflow()


@pytest.mark.slow  # it downloads an old Airflow
@pytest.mark.skipif(UV is None, reason="uv installs what was there on a day, pip does not")
def test_the_wheel_goes_beside_the_oldest_airflow_of_its_range(scene: Scenario) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {each.name: each for each in map(Requirement, project["optional-dependencies"]["airflow"])}
    assert str(needed["apache-airflow"].specifier) == "<4,>=3.2", "another release is the oldest one"
    wheel, environment = build(scene.folder / "wheel"), scene.folder / "environment"
    resolve(environment, f"apache-airflow=={OLDEST}", *needed.keys() - {"apache-airflow"}, of_day=ITS_DAY)
    installed = Installed(scene, resolve(environment, f"{wheel}[airflow]", f"apache-airflow=={OLDEST}"))
    assert installed.said("airflow", "version").split()[-1] == OLDEST
    installed.check()
    installed.shows_itself_in_airflow()


@pytest.mark.slow
def test_what_make_dist_builds_holds_the_package_also_when_it_is_built_from_the_source_distribution(
    tmp_path: Path,
) -> None:
    wheel, source = distributed(tmp_path / "copy")
    for built in (wheel, wheel_of(source, tmp_path / "built")):
        assert {name for name in zipfile.ZipFile(built).namelist() if ".dist-info/" not in name} == files()
