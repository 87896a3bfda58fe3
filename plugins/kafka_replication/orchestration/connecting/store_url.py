"""Finds the database of the watermark store. It is not Airflow's database, which an Airflow 3 task cannot reach."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from airflow.configuration import AIRFLOW_HOME
from airflow.sdk import Variable

from kafka_replication.connections.environment import STORE_URL
from kafka_replication.model.errors import BadInput, ConnectionMissing
from kafka_replication.orchestration.connecting.connections import lookup

if TYPE_CHECKING:
    from kafka_replication.store import WatermarkStore

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
