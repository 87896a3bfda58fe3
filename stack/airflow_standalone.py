"""Airflow standalone: scheduler, DAG processor, triggerer and API server on loopback, SQLite, all below one folder."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from stack.airflow_api import PATIENCE, AirflowApi
from stack.errors import StackError
from stack.folders import REPOSITORY
from stack.ports import LOOPBACK, free_ports, is_taken
from stack.processes import ProcessRecord, launch, tail

USER = "admin"
START_SECONDS = 900  # a machine may be busy with other things; a process that ends is noticed at once
STOP_SECONDS = 30
COMPONENTS = frozenset({"metadatabase", "scheduler", "triggerer", "dag_processor"})

# A shell that starts a command in the background makes it ignore SIGINT, and Python keeps it so: Airflow could not be
# stopped cleanly.
_WITH_SIGINT = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
)

# standalone runs `airflow` from the PATH. Its log servers listen on every interface and cannot be told otherwise; on
# one machine nobody needs them: the API server reads the log files.
_SHIM = """#!/bin/sh
case "${{1:-}}" in scheduler|triggerer) set -- "$@" --skip-serve-logs ;; esac
exec {python} -m airflow "$@"
"""


@dataclass(frozen=True, slots=True)
class AirflowSettings:
    """What may differ between two stacks. ``local[*,4]`` lets Spark try a task four times; ``local[*]`` would allow one
    try.
    """

    source: str
    target: str
    store_url: str
    dags: Path = REPOSITORY / "dags"
    _: KW_ONLY
    plugins: Path = REPOSITORY / "plugins"
    spark_master: str = "local[*,4]"
    env: Mapping[str, str] = field(default_factory=dict)


class AirflowStandalone:
    """Airflow in the folder ``state/airflow``. It survives this program; the same folder finds it again."""

    def __init__(self, state: Path, settings: AirflowSettings | None = None, port: int | None = None) -> None:
        self.home = Path(state).resolve() / "airflow"
        self.log = self.home / "standalone.log"
        self.settings = settings
        self._asked = port
        self._record = self.home / "standalone.pid"
        self._facts = self.home / "stack.json"

    @property
    def process(self) -> ProcessRecord | None:
        """The living process, or None."""
        record = ProcessRecord.read(self._record)
        return record if record is not None and record.alive else None

    @property
    def port(self) -> int:
        if not self._facts.exists():
            raise StackError(f"Airflow was never started in {self.home}", "start it first")
        return int(json.loads(self._facts.read_text())["port"])

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def password(self) -> str:
        """The password of the user ``admin``, made up at the first start."""
        return str(json.loads(self._passwords.read_text())[USER])

    def api(self, patience: float = PATIENCE) -> AirflowApi:
        """A client for this Airflow, logged in as ``admin`` when first needed."""
        return AirflowApi(self.url, USER, self.password, patience)

    @property
    def healthy(self) -> bool:
        """Whether the process lives and every component says that it is healthy."""
        return self.process is not None and not self._unhealthy()

    def start(self) -> None:
        """Start it unless it runs, and wait until every component is healthy.

        Starting what is healthy changes nothing.
        """
        if self.healthy:
            return
        if self.process is None:
            self._launch()
        self._wait_healthy()

    def stop(self) -> None:
        """SIGINT to the leader, which ends its parts in order; sent to all of them, as Ctrl-C does, it hangs.

        In the end SIGKILL.
        """
        record = ProcessRecord.read(self._record)
        if record is None:
            return
        # Once the leader is gone its number may lead another session: its members are only looked for when it was alive
        # just now.
        if record.alive:
            record.send(signal.SIGINT)
            if not record.wait(STOP_SECONDS):
                record.send_group(signal.SIGTERM)
                record.wait(2)
            record.send_group(signal.SIGKILL)
            record.wait(STOP_SECONDS)
        self._record.unlink(missing_ok=True)

    @property
    def _bin(self) -> Path:
        return self.home / "bin"

    @property
    def _passwords(self) -> Path:
        return self.home / "simple_auth_manager_passwords.json.generated"

    def _launch(self) -> None:
        if self.settings is None:
            raise StackError("Airflow is not running and was given no settings to start with", "pass AirflowSettings")
        self.home.mkdir(parents=True, exist_ok=True)
        self._settle_port()
        if not self._passwords.exists():
            self._passwords.touch(mode=0o600)
            self._passwords.write_text(json.dumps({USER: secrets.token_urlsafe(12)}) + "\n")
        shim = self._bin / "airflow"
        self._bin.mkdir(exist_ok=True)
        shim.write_text(_SHIM.format(python=shlex.quote(sys.executable)))
        shim.chmod(0o755)
        command = [sys.executable, "-c", _WITH_SIGINT, sys.executable, "-m", "airflow", "standalone"]
        launch(command, self.log, self._record, env=self.environment(self.settings), cwd=self.home)

    def _settle_port(self) -> None:
        if self._asked is not None and is_taken(self._asked):
            raise StackError(
                f"port {self._asked} is taken: Airflow cannot listen there",
                "stop what listens there, or choose another port",
            )
        port = self._asked or (self.port if self._facts.exists() else 0)
        if not port or is_taken(port):
            [port] = free_ports(1)
        self._facts.write_text(json.dumps({"port": port}) + "\n")

    def environment(self, settings: AirflowSettings) -> dict[str, str]:
        """This program's environment with what Airflow and its tasks need; settings of the caller's own Airflow stay
        out.
        """
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("AIRFLOW_")}
        paths = [str(settings.plugins), *filter(None, [os.environ.get("PYTHONPATH")])]
        # The Spark operator runs `spark-submit` from the PATH.
        path = os.pathsep.join([str(self._bin), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        return {
            **inherited,
            **self._airflow_configuration(settings),
            **connections(settings),
            "AIRFLOW_HOME": str(self.home),
            "KAFKA_REPLICATION_STORE_URL": settings.store_url,
            "PATH": path,
            "PYTHONPATH": os.pathsep.join(paths),
            "PYSPARK_PYTHON": sys.executable,
            **settings.env,
        }

    def _airflow_configuration(self, settings: AirflowSettings) -> dict[str, str]:
        configuration = {
            "core.dags_folder": str(settings.dags),
            "core.plugins_folder": str(settings.plugins),
            "core.load_examples": "False",
            "core.test_connection": "Enabled",
            "core.executor": "LocalExecutor",
            "core.parallelism": "8",
            "core.execution_api_server_url": f"{self.url}/execution/",
            "core.simple_auth_manager_users": f"{USER}:admin",
            "core.simple_auth_manager_passwords_file": str(self._passwords),
            "database.sql_alchemy_conn": f"sqlite:///{self.home}/airflow.db?timeout=60",
            "api.host": LOOPBACK,
            "api.port": str(self.port),
            "api.base_url": self.url,
            "api.workers": "1",
            "dag_processor.refresh_interval": "3",
            "dag_processor.min_file_process_interval": "3",
            "dag_processor.bundle_refresh_check_interval": "1",
            # A task repeats a request that was not answered in time. On a busy machine both then register the same
            # assets, the second one fails, and Airflow sets a task to failed whose run is done.
            "workers.execution_api_timeout": "60",
            "usage_data_collection.enabled": "False",
        }
        return {f"AIRFLOW__{key.replace('.', '__').upper()}": value for key, value in configuration.items()}

    def _unhealthy(self) -> list[str]:
        try:
            with self.api(patience=0) as api:
                states = api.health()
        except StackError:
            return ["the API server"]
        return sorted(name for name in COMPONENTS if states.get(name) != "healthy")

    def _wait_healthy(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while missing := self._unhealthy():
            last = f"the end of {self.log}:\n{tail(self.log, 30)}"
            if self.process is None:
                raise StackError(f"Airflow ended while starting; {last}", "the log names the cause")
            if time.monotonic() > deadline:
                self.stop()
                raise StackError(
                    f"Airflow is not healthy within {START_SECONDS} s ({', '.join(missing)}); {last}", "see the log"
                )
            time.sleep(0.5)

    def wipe(self) -> None:
        """Stop, and forget all DAG runs and logs."""
        self.stop()
        shutil.rmtree(self.home, ignore_errors=True)


def connections(settings: AirflowSettings) -> dict[str, str]:
    """In the JSON form: the URI form of ``local[*]`` silently becomes ``yarn``."""
    clusters = {"SOURCE": settings.source, "TARGET": settings.target}
    kafka = {
        f"AIRFLOW_CONN_KAFKA_{name}": json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": bootstrap}})
        for name, bootstrap in clusters.items()
    }
    return {**kafka, "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": settings.spark_master})}
