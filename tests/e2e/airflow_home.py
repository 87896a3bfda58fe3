"""An Airflow home of a test's own, in which DAGs run for real."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from kafka_replication.config import Replication
from kafka_replication.runs.run import Request
from kafka_replication.store import open_store
from tests.support import whole_runs
from tests.support.addresses import Addresses
from tests.support.clusters import Brokers
from tests.support.jobs import InProcess
from tests.support.scenario import Cluster

REPOSITORY = Path(__file__).parents[2]
SECRET = "do-not-show-me"
FILE = """\
name: {name}
source: {{connection: kafka_source}}
target: {{{target}}}
topics: {{include: [{topic}]}}
retries: {{attempts: 0}}
copy: {{chunk_records: {chunk}}}
"""


@dataclass
class Airflow:
    """An Airflow home with the repository's DAG files and one store."""

    folder: Path
    environment: dict[str, str]
    _running: tuple[dict[str, str], subprocess.Popen[str]] | None = field(init=False, default=None)

    def replicate(
        self,
        name: str,
        topic: str,
        more: str = "",
        chunk: int = 100_000,
        target: str = "connection: kafka_target",
    ) -> Path:
        file = self.folder / "dags" / "replications" / f"{name}.yaml"
        file.write_text(FILE.format(name=name, topic=topic, chunk=chunk, target=target) + more)
        return file

    def run(self, name: str, *, logical_date: str = "", **conf: Any) -> tuple[dict[str, Any], str]:
        """What became of a run, and everything that was logged."""
        request = {
            "dag_file": str(self.folder / "dags" / "kafka_replication_dags.py"),
            "dag_id": name,
            "conf": conf,
            "logical_date": logical_date,
        }
        done, said = self._ask(request)
        assert done["state"] != "not run", said[-5000:]
        return done, said

    def airflow(self, *arguments: str) -> tuple[object, str]:
        """What a command of Airflow's ends with (0: success), and everything that it says."""
        done, said = self._ask({"arguments": arguments})
        assert done["state"] == "ended", said[-5000:]
        return done["code"], said

    def _ask(self, request: dict[str, Any]) -> tuple[dict[str, Any], str]:
        log = self.folder / "run.log"
        process = self._process()
        assert process.stdin is not None and process.stdout is not None
        print(json.dumps({**request, "log": str(log)}), file=process.stdin, flush=True)
        answer = process.stdout.readline()
        said = log.read_text() if log.exists() else ""
        assert answer, f"Airflow's process ended: {said[-5000:]}"
        done: dict[str, Any] = json.loads(answer)
        return done, said

    def _process(self) -> subprocess.Popen[str]:
        """The process that runs DAGs. A changed environment needs another one."""
        if self._running is None or self._running[0] != self.environment:
            self.close()
            line = [sys.executable, str(Path(__file__).with_name("airflow_run.py"))]
            with (self.folder / "process.log").open("a") as log:
                process = subprocess.Popen(
                    line, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
                )
            self._running = dict(self.environment), process
        return self._running[1]

    def close(self) -> None:
        """End that process."""
        if self._running is not None:
            self._running[1].communicate()
            self._running = None

    def command(self, file: Path) -> subprocess.Popen[str]:
        """``kafka-replication run FILE --json``, under way."""
        line = [sys.executable, "-m", "kafka_replication.cli", "run", str(file), "--json"]
        return subprocess.Popen(line, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def watermarks(self, name: str) -> dict[int, int]:
        store = open_store(self.environment["KAFKA_REPLICATION_STORE_URL"])
        try:
            assert not store.leases(name), "the lease was not given back"
            return {key.source.partition: each.offset for key, each in store.watermarks(name).items()}
        finally:
            store.close()


def connection(cluster: Brokers) -> str:
    return json.dumps(
        {"conn_type": "kafka", "extra": {"bootstrap.servers": cluster.bootstrap, "ssl.key.password": SECRET}}
    )


class Sides(Addresses):
    """Under the names that the files of `Airflow` give them."""

    def kafka(self, connection_id: str) -> dict[str, Any]:
        return super().kafka(connection_id.removeprefix("kafka_"))


def copy(airflow: Airflow, name: str, source: Cluster, target: Cluster) -> str:
    """A run of the command line, without Spark. Returns its outcome."""
    file = airflow.folder / "dags" / "replications" / f"{name}.yaml"
    replication = Replication.model_validate(yaml.safe_load(file.read_text()))
    with closing(open_store(airflow.environment["KAFKA_REPLICATION_STORE_URL"])) as store:
        sides = Sides(source.bootstrap, target.bootstrap)
        return whole_runs.run(replication, sides, store, InProcess(), Request()).outcome
