"""What the connections hold stays between the run and its workers: it is looked for wherever others may look."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
import yaml

from kafka_replication.connections import STORE_URL, SparkConnection
from kafka_replication.runtime.failpoints import VARIABLE, at_gate
from kafka_replication.spark.workspace import PRIVATE
from stack.ports import LOOPBACK, free_ports
from tests.support.scenario import Scenario, numbered
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
PAGES = ("/jobs/", "/stages/", "/storage/", "/environment/", "/executors/", "/api/v1/applications")
OF_AN_APPLICATION = ("/environment", "/jobs", "/stages", "/allexecutors")


@dataclass
class Looking:
    """A run of the command line, whose environment holds one secret in each variable that could."""

    scene: Scenario
    spark: SparkConnection
    page: int
    secrets: dict[str, str] = field(default_factory=dict)  # where each one was put
    began: float = field(default_factory=time.time)

    def secret(self, place: str) -> str:
        made = secrets.token_hex(8)
        self.secrets[made] = place
        return made

    def variables(self) -> dict[str, str]:
        def kafka(name: str, bootstrap: str) -> str:
            more = {key: self.secret(f"{key} of {name}") for key in ("sasl.password", "ssl.key.password")}
            return json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": bootstrap, **more}})

        address = f"json://user:{self.secret('address of alerts')}@{LOOPBACK}:1"
        return {
            "AIRFLOW_CONN_SOURCE": kafka("source", self.scene.source.bootstrap),
            "AIRFLOW_CONN_TARGET": kafka("target", self.scene.target.bootstrap),
            "AIRFLOW_CONN_ALERTS": json.dumps({"conn_type": "apprise", "extra": {"config": {"path": address}}}),
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": self.spark.master}),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"postgresql://user:{self.secret('database of Airflow')}@db/airflow",
            "AIRFLOW_VAR_SOMETHING": self.secret("variable of Airflow"),
            STORE_URL: self.scene.store_url,
        }

    @contextmanager
    def run(self, gate: Path) -> Iterator[subprocess.Popen[str]]:
        """It waits at the gate, inside its third chunk. What Spark logs goes to the run's stderr."""
        gate.touch()
        document = self.scene.document(
            alerts={"apprise": "alerts"},
            spark={"conf": self.conf(gate)},
            copy={"chunk_records": 100},
        )
        file = self.scene.folder / f"{self.scene.name}.yaml"
        file.write_text(yaml.safe_dump(document))
        command = [sys.executable, "-m", "kafka_replication.cli", "--verbose", "run", str(file), "--json"]
        variables = {**self.variables(), VARIABLE: f"P1:3={gate}", "PYTHONPATH": f"{ROOT}/plugins:{ROOT}"}
        with (self.scene.folder / "stdout").open("w") as out, (self.scene.folder / "stderr").open("w") as err:
            process = subprocess.Popen(
                command, cwd=self.scene.folder, env={**os.environ, **variables}, stdout=out, stderr=err, text=True
            )
            try:
                yield process
            finally:
                gate.unlink(missing_ok=True)
                process.wait()

    def conf(self, gate: Path) -> Mapping[str, str]:
        return {
            **self.spark.conf,
            "spark.ui.enabled": "true",
            "spark.ui.port": str(self.page),
            "spark.log.level": "INFO",
            f"spark.executorEnv.{VARIABLE}": f"P1:3={gate}",
        }

    def found(self, where: str, content: bytes) -> list[str]:
        return [f"{place} in {where}" for secret, place in self.secrets.items() if secret.encode() in content]

    def in_processes(self, run: int) -> list[str]:
        """Of the whole machine. The run's own environment is where the user put the secrets."""
        found, variables = [], []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                command = process.cmdline()
                found += self.found(f"the command line of {command[:2]}", "\0".join(command).encode())
                if process.pid != run:
                    environment = "\0".join(f"{name}={value}" for name, value in process.environ().items())
                    found += self.found(f"the environment of {command[:2]}", environment.encode())
        for child in psutil.Process(run).children(recursive=True):
            with suppress(psutil.Error):
                variables += [f"{name} of {child.name()}" for name in child.environ() if name.startswith(PRIVATE)]
        return found + variables

    def in_files(self) -> list[str]:
        """Below the test's folder (the store, the logs), and what is new in the folder for temporary files."""
        temporary = Path(tempfile.gettempdir())
        of_spark = [
            each for name in ("spark-", "blockmgr-", "kafka-replication-") for each in temporary.glob(f"{name}*")
        ]
        found = []
        for folder in (self.scene.folder, *of_spark):
            for file in (folder, *folder.rglob("*")):
                with suppress(OSError):  # it is gone already
                    if file.is_file() and file.stat().st_mtime >= self.began - 1:
                        found += self.found(str(file), file.read_bytes())
        return found

    def in_pages(self) -> list[str]:
        address = f"http://{LOOPBACK}:{self.page}"
        pages = {name: _get(f"{address}{name}") for name in PAGES}
        [application] = re.findall(rb'"id" : "([^"]+)"', pages["/api/v1/applications"])
        pages |= {
            name: _get(f"{address}/api/v1/applications/{application.decode()}{name}") for name in OF_AN_APPLICATION
        }
        assert b"spark.ui.port" in pages["/environment/"]
        return [line for name, content in pages.items() for line in self.found(f"Spark's page {name}", content)]


def _get(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=60) as page:
        return bytes(page.read())


@pytest.fixture
def ready(scene: Scenario) -> Scenario:
    scene.source.create(scene.topic)
    scene.source.produce(scene.topic, numbered(500))
    return scene


def assert_kept(looking: Looking) -> None:
    scene = looking.scene
    gate = scene.folder / "gate"
    with looking.run(gate) as run:
        wait_until(lambda: at_gate(gate).exists() or run.poll() is not None)
        assert run.poll() is None, (scene.folder / "stderr").read_text()[-3000:]
        seen = looking.in_processes(run.pid) + looking.in_files() + looking.in_pages()
    said = (scene.folder / "stderr").read_text()
    assert run.returncode == 0, said[-3000:]
    assert "SparkContext" in said, "Spark's log is not here"
    assert seen + looking.in_files() == []
    scene.assert_copied()


@pytest.mark.slow  # `test_spark_submission.py` has the command line, `test_submit.py` the environment, `test_airflow_run.py` files
def test_local_spark_sees_no_secret(ready: Scenario) -> None:
    [page] = free_ports(1)
    assert_kept(Looking(ready, SparkConnection("local[2]", {}), page))


@pytest.mark.slow
def test_a_spark_cluster_sees_no_secret(ready: Scenario, spark_cluster: SparkConnection) -> None:
    [page] = free_ports(1)
    assert_kept(Looking(ready, spark_cluster, page))
