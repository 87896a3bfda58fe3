"""An Airflow home of a test's own, in which DAGs run for real."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka_replication.store import open_store
from tests.support.clusters import Brokers

REPOSITORY = Path(__file__).parents[2]
SECRET = "do-not-show-me"
FILE = """\
name: {name}
source: {{connection: kafka_source}}
target: {{connection: kafka_target}}
topics: {{include: [{topic}]}}
retries: {{attempts: 0}}
copy: {{chunk_records: {chunk}}}
lease: {{wait: 300}}
alerts: {{callback: "alerts.oncall:tell"}}
"""
ONCALL = """\
import json, os

def tell(context):
    with open(os.environ["ALERTS"], "a") as file:
        file.write(json.dumps([context["dag"].dag_id, context["run_id"], context["alert"]]) + "\\n")
"""


@dataclass
class Airflow:
    """An Airflow home with the repository's DAG files and one store."""

    folder: Path
    environment: dict[str, str]

    def replicate(self, name: str, topic: str, more: str = "", chunk: int = 100_000) -> Path:
        file = self.folder / "dags" / "replications" / f"{name}.yaml"
        file.write_text(FILE.format(name=name, topic=topic, chunk=chunk) + more)
        return file

    def run(
        self, name: str, *, file: str = "replications_dag.py", logical_date: str = "", **conf: Any
    ) -> tuple[dict[str, Any], str]:
        """What became of a run, and everything that was logged."""
        script = [str(Path(__file__).with_name("airflow_run.py")), str(self.folder / "dags" / file)]
        done = subprocess.run(
            [sys.executable, *script, name, json.dumps(conf), logical_date],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        log = done.stdout + done.stderr
        assert done.returncode == 0, log[-5000:]
        return json.loads(done.stdout.strip().splitlines()[-1]), log

    def alerts(self) -> list[list[str]]:
        """What the user's function was told since this was asked last: DAG id, run id, text."""
        file = Path(self.environment["ALERTS"])
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return [json.loads(line) for line in lines]

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
