"""Airflow's processes that fork have loaded what their forks need, and no other process has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
# One process, whose start takes seconds, plays one part after the other, as Airflow's commands do.
PARTS = """
import json, os, sys, threading
from airflow.jobs.job import Job
from airflow.sdk.execution_time.task_runner import TaskRunnerMarker
from airflow.sdk.listener import get_listener_manager
from kafka_replication.orchestration.plugin import DAG_FILE, STEPS

loaded = []

def note():
    loaded.append([all(name in sys.modules for name in names) for names in (DAG_FILE, STEPS)])

get_listener_manager().hook.on_starting(component=TaskRunnerMarker())
note()
import airflow.jobs.triggerer_job_runner
Job()
note()
import airflow.jobs.scheduler_job_runner
os.environ["AIRFLOW__CORE__EXECUTOR"] = "CeleryExecutor"
Job()
note()
import airflow.jobs.dag_processor_job_runner
Job()
note()
del sys.modules["airflow.jobs.dag_processor_job_runner"]
os.environ["AIRFLOW__CORE__EXECUTOR"] = "LocalExecutor"
Job()
note()
print(json.dumps([loaded, [thread.name for thread in threading.enumerate()]]))
"""


def test_who_loads_what() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PARTS],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "plugins")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (task, triggerer, elsewhere, dag_processor, scheduler), threads = json.loads(done.stdout.splitlines()[-1])
    assert task == triggerer == elsewhere == [False, False]
    assert dag_processor == [True, False]
    assert scheduler == [True, True]
    assert threads == ["MainThread"], "a fork has none of its parent's threads"
