"""Airflow reads its home as it is imported: a fresh one, before any test module here imports it."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.received import received

__all__ = ["received"]
if "airflow" not in sys.modules:
    os.environ["AIRFLOW_HOME"] = home = tempfile.mkdtemp(prefix="kafka-replication-airflow-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)  # before Airflow registers its own, so it comes last
    os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "false"
    os.environ["AIRFLOW__CORE__UNIT_TEST_MODE"] = "false"

REPOSITORY = Path(__file__).parents[2]
GOOD = """\
name: {name}
source: {{connection: kafka_source}}
target: {{connection: kafka_target}}
topics: {{include: [{name}]}}
"""


@pytest.fixture
def dags_folder(tmp_path: Path) -> Path:
    """The repository's DAG files beside two replications of this test's own."""
    folder = tmp_path / "dags"
    (folder / "replications").mkdir(parents=True)
    for file in (REPOSITORY / "dags").glob("*.py"):
        (folder / file.name).write_text(file.read_text())
    for name in ("orders", "payments"):
        (folder / "replications" / f"{name}.yaml").write_text(GOOD.format(name=name))
    return folder
