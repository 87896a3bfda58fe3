"""Real Spark, submitted through the Spark provider's hook as an Airflow task does, keeps what every launcher has to keep."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.airflow_home import REPOSITORY, Airflow
from tests.support.clusters import Brokers


@pytest.mark.slow  # the DAGs run through it, and `test_launcher_conformance.py` has what launchers share
def test_the_hook_launcher_conforms(
    airflow: Airflow, source_cluster: Brokers, target_cluster: Brokers, tmp_path: Path
) -> None:
    environment = {
        **airflow.environment,
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2,4]"}),
        "PYTHONPATH": os.pathsep.join([airflow.environment["PYTHONPATH"], str(REPOSITORY)]),
    }
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.e2e.hook_conformance"),
            *(source_cluster.bootstrap, target_cluster.bootstrap, str(tmp_path)),
        ],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and done.stdout.endswith("conforms\n"), done.stdout[-3000:] + done.stderr[-5000:]
