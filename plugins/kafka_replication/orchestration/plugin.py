"""The plugin by which Airflow shows that this package is installed, and its page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from airflow.plugins_manager import AirflowPlugin

from kafka_replication.orchestration.preloading import Preloading
from kafka_replication.web import PREFIX, ROUTE


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
