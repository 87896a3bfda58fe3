"""The wheel in an empty environment, with what its own metadata asks for: first the command line, then in Airflow."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.spark.installation import ROOT, build, resolve
from tests.support.scenario import Scenario

DAGS = """
import json, runpy, sys
from airflow.sdk import DAG
print(json.dumps(sorted(name for name, value in runpy.run_path(sys.argv[1]).items() if isinstance(value, DAG))))
"""


@pytest.mark.slow  # it downloads Airflow
def test_the_wheel_goes_into_an_empty_environment_and_then_into_airflow(scene: Scenario) -> None:
    scene.source.create(scene.topic, 1)
    files = scene.folder / "dags" / "replications"
    files.mkdir(parents=True)
    file = files / f"{scene.name}.yaml"
    file.write_text(json.dumps(scene.document()))
    sides = {"SOURCE": scene.source, "TARGET": scene.target}
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        **{
            f"AIRFLOW_CONN_{name}": json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": each.bootstrap}})
            for name, each in sides.items()
        },
        "KAFKA_REPLICATION_STORE_URL": scene.store_url,
        "AIRFLOW_HOME": str(scene.folder / "airflow"),
    }

    def said(program: Path, *arguments: str, code: int = 0) -> str:
        command = [str(program), *arguments]
        done = subprocess.run(command, env=environment, cwd=scene.folder, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    wheel = build(scene.folder / "wheel")
    programs = resolve(wheel, scene.folder / "environment")
    assert "replicat" in said(programs / "kafka-replication", "--help")
    checked = said(programs / "kafka-replication", "check", str(file), "--json", code=1)
    assert "pip install 'kafka-replication[spark]'" in checked and "kafka-replication[airflow]" not in checked

    resolve(wheel, scene.folder / "environment", "airflow")
    assert "kafka-replication" in said(programs / "airflow", "providers", "list")
    assert "KafkaReplicationPlugin" in said(programs / "airflow", "plugins")
    dag_file = shutil.copy(ROOT / "dags" / "kafka_replication_dags.py", files.parent)
    found = json.loads(said(programs / "python", "-c", DAGS, str(dag_file)).splitlines()[-1])
    assert found == sorted(
        [*(f"{scene.name}{kind}" for kind in ("", ".audit", ".backfill", ".failed")), "replications.watch"]
    )
