"""The plugin by which Airflow shows that this package is installed, and its page.

Loads modules in the processes of Airflow that fork, once, instead of in each fork: a task, a look at a DAG file.

Importing creates no client and starts no thread, so forking is safe afterwards.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Mapping
from typing import Any, Final

from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin

from kafka_replication.web import PREFIX, ROUTE

log = logging.getLogger(__name__)
DAG_FILE: Final = ("kafka_replication.orchestration.airflow",)
# What the steps load when they run (`dags.tasks`, `operators`).
STEPS: Final = (
    "kafka_replication.runs.steps",
    "kafka_replication.runs.leasing",
    "kafka_replication.kafka.target",
    "kafka_replication.store.watermark_store",
    "kafka_replication.orchestration.spark_hook",
    "kafka_replication.spark.submit",
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


class PageApp:
    """The page as an ASGI app. It is imported at the first request: every task loads this plugin, and none needs it."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        from kafka_replication.orchestration.page_app import app

        await app()(scope, receive, send)


APPS: Final[list[Mapping[str, Any]]] = [{"app": PageApp(), "url_prefix": PREFIX, "name": "Kafka replication"}]
# Without a slash in front: relative to where Airflow itself is.
VIEWS: Final[list[Mapping[str, Any]]] = [
    {
        "name": "Replications",
        "href": f"{PREFIX[1:]}/",
        "destination": "nav",
        "nav_top_level": True,  # one click away, however many other plugins there are
        "url_route": ROUTE,
    },
    {
        "name": "Replication",
        "href": f"{PREFIX[1:]}/of/{{DAG_ID}}",
        "destination": "dag",
        "url_route": "replication",
    },
    {
        "name": "Replication",
        "href": f"{PREFIX[1:]}/of/{{DAG_ID}}/{{RUN_ID}}",
        "destination": "dag_run",
        "url_route": "replication-run",
    },
]
LISTENERS: Final[list[object]] = [Preloading()]


class KafkaReplicationPlugin(AirflowPlugin):
    """Kafka replication's part of Airflow."""

    name = "kafka_replication"
    fastapi_apps = APPS
    external_views = VIEWS
    listeners = LISTENERS
