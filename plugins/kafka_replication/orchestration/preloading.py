"""Loads modules in the processes of Airflow that fork, once, instead of in each fork: a task, a look at a DAG file.

Importing creates no client and starts no thread, so forking is safe afterwards.
"""

from __future__ import annotations

import importlib
import logging
import sys
from typing import Final

from airflow.listeners import hookimpl

log = logging.getLogger(__name__)
DAG_FILE: Final = ("kafka_replication.orchestration.airflow",)
# What the steps load when they run (`dags.tasks`, `operators`).
STEPS: Final = (
    "kafka_replication.runs.steps",
    "kafka_replication.runs.leasing",
    "kafka_replication.kafka.target.catalogue",
    "kafka_replication.kafka.target.standing",
    "kafka_replication.store.watermark_store",
    "kafka_replication.orchestration.connecting.spark_hook",
    "kafka_replication.spark.submitting.submit",
)
_FORKING_TASKS: Final = "LocalExecutor"  # other executors start new processes, or work elsewhere


class Preloading:
    """A listener of Airflow's processes."""

    @hookimpl
    def on_starting(self, component: object) -> None:
        """Called in the scheduler, the DAG processor and the triggerer with the job of the process, before it forks;
        and in each task, for which nothing is loaded.
        """
        if type(component).__name__ != "Job":
            return
        from airflow.configuration import conf  # no task needs it

        if "airflow.jobs.dag_processor_job_runner" in sys.modules:
            _load(DAG_FILE)
        elif "airflow.jobs.scheduler_job_runner" in sys.modules and _FORKING_TASKS in conf.get("core", "executor"):
            _load(DAG_FILE + STEPS)


def _load(names: tuple[str, ...]) -> None:
    """Import these. What cannot be imported is reported by the DAG file or the task that needs it."""
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as problem:  # noqa: BLE001 - Airflow must start all the same
            log.warning("%s is not loaded before it is needed: %s", name, problem)
            return
