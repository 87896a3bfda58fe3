"""Airflow's connections: from its secrets backends, from ``AIRFLOW_CONN_*``, and from its UI.

Finds the database of the watermark store. It is not Airflow's database, which an Airflow 3 task cannot reach.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from airflow.configuration import AIRFLOW_HOME, conf
from airflow.sdk import Connection, Variable
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from kafka_replication.connections import (
    ALLOWLIST_OPTION,
    ALLOWLIST_SECTION,
    FIELDS,
    SEE,
    STORE_URL,
    Definition,
    SparkConnection,
    callback_allowlist,
)
from kafka_replication.model.errors import BadInput, ConnectionMissing

if TYPE_CHECKING:
    from kafka_replication.store import WatermarkStore


class AirflowConnections:
    """Implements `kafka_replication.connections.Connections`; works inside tasks."""

    def kafka(self, connection_id: str) -> dict[str, Any]:
        connection = lookup(connection_id)
        allowed = conf.get(ALLOWLIST_SECTION, ALLOWLIST_OPTION, fallback="")
        settings = _definition(connection).kafka_settings(callback_allowlist(allowed))
        _ = connection.extra_dejson  # this makes Airflow mask the secrets in it in all logs
        return settings

    def service(self, connection_id: str, conn_type: str) -> dict[str, Any]:
        connection = lookup(connection_id)
        settings = _definition(connection).service_settings(conn_type)
        _ = connection.extra_dejson  # as above; the password is masked already
        return settings

    def spark(self, connection_id: str) -> SparkConnection:
        return _definition(lookup(connection_id)).spark_connection()

    def apprise(self, connection_id: str) -> tuple[str, ...]:
        connection = lookup(connection_id)
        addresses = _definition(connection).apprise_addresses()
        for address in addresses:
            mask_secret(address)
        return addresses


def lookup(connection_id: str) -> Connection:
    """Airflow's connection. Raises ConnectionMissing."""
    try:
        connection: Connection = Connection.get(connection_id)
    except AirflowNotFoundException as e:
        raise ConnectionMissing(
            f"connection {connection_id!r} is not defined", f"add it in Airflow, Admin, Connections; {SEE}"
        ) from e
    return connection


def _definition(connection: Connection) -> Definition:
    return Definition(connection_id=connection.conn_id, **{name: getattr(connection, name) for name in FIELDS})


NAME = "kafka_replication_store"
VARIABLE = f"{NAME}_url"


def store() -> WatermarkStore:
    """The store at `store_url`. Raises BadInput, Unreachable, Refused."""
    from kafka_replication.store import open_store

    return open_store(store_url())


def store_url() -> str:
    """The first that is set of the environment variable, the Airflow variable and the Airflow connection. Without
    these, an SQLite file in Airflow's home.
    """
    in_home = f"sqlite:///{Path(AIRFLOW_HOME).absolute()}/kafka_replication.db"
    return os.environ.get(STORE_URL) or Variable.get(VARIABLE, default=None) or _from_connection() or in_home


def _from_connection() -> str | None:
    try:
        connection = lookup(NAME)
    except ConnectionMissing:
        return None
    if connection.conn_type == "sqlite":
        return f"sqlite:///{connection.host}"
    if connection.conn_type not in ("postgres", "postgresql"):
        raise BadInput(f"connection {NAME!r} is of type {connection.conn_type!r}", "make it sqlite or postgres")
    user = quote(connection.login or "", safe="") + (
        f":{quote(connection.password, safe='')}" if connection.password else ""
    )
    query = urlsplit(connection.get_uri()).query if connection.extra else ""
    return (
        f"postgresql+psycopg://{user + '@' if user else ''}{connection.host or 'localhost'}:{connection.port or 5432}"
        f"/{quote(connection.schema or '', safe='')}{'?' + query if query else ''}"
    )
