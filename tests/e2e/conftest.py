"""One Airflow for all tests here."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.airflow_home import REPOSITORY, Airflow, connection
from tests.e2e.page_server import browser, server, sides
from tests.support.clusters import Brokers

__all__ = ["browser", "server", "sides"]


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """While it exists, workers that copy halt inside their third chunk."""
    file = tmp_path / "gate"
    file.touch()
    return file


@pytest.fixture(scope="session")
def airflow(
    tmp_path_factory: pytest.TempPathFactory, source_cluster: Brokers, target_cluster: Brokers
) -> Iterator[Airflow]:
    folder = tmp_path_factory.mktemp("airflow")
    (folder / "dags" / "replications").mkdir(parents=True)
    for file in (REPOSITORY / "dags").glob("*.py"):
        (folder / "dags" / file.name).write_text(file.read_text())
    inherited = {
        key: value for key, value in os.environ.items() if not key.startswith(("AIRFLOW_", "KAFKA_REPLICATION_"))
    }
    environment = inherited | {
        "AIRFLOW_HOME": str(folder / "home"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
        "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(REPOSITORY / "plugins"),
        "PYTHONPATH": str(REPOSITORY / "plugins"),
        "KAFKA_REPLICATION_STORE_URL": f"sqlite:///{folder}/store.db",
        "AIRFLOW_CONN_KAFKA_SOURCE": connection(source_cluster),
        "AIRFLOW_CONN_KAFKA_TARGET": connection(target_cluster),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[*]"}),
    }
    home = Airflow(folder, environment)
    code, said = home.airflow("db", "migrate")
    assert code == 0, said[-5000:]
    yield home
    home.close()
