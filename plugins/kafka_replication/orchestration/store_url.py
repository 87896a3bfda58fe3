"""Which database holds the watermarks; Airflow's own is out of a task's reach."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote, urlsplit

from airflow.configuration import AIRFLOW_HOME
from airflow.sdk import Connection, Variable

from kafka_replication.connections.environment import STORE_URL
from kafka_replication.model.errors import BadInput, ConnectionMissing
from kafka_replication.orchestration.connections import lookup
from kafka_replication.store import open_store
from kafka_replication.watermarks.store import WatermarkStore

NAME = "kafka_replication_store"
VARIABLE = f"{NAME}_url"


def store() -> WatermarkStore:
    """The store at `store_url`. Raises BadInput, Unreachable, Refused."""
    return open_store(store_url())


def store_url() -> str:
    """The first that is set: the environment, an Airflow variable, an Airflow connection; else a file in Airflow's
    home.
    """
    return os.environ.get(STORE_URL) or Variable.get(VARIABLE, default=None) or _from_connection() or _in_home()


def _in_home() -> str:
    return f"sqlite:///{Path(AIRFLOW_HOME).absolute()}/kafka_replication.db"


def _from_connection() -> str | None:
    try:
        found = lookup(NAME)
    except ConnectionMissing:
        return None
    if found.conn_type == "sqlite":
        return f"sqlite:///{found.host}"
    if found.conn_type not in ("postgres", "postgresql"):
        raise BadInput(f"connection {NAME!r} is of type {found.conn_type!r}", "make it sqlite or postgres")
    return _postgres(found)


def _postgres(found: Connection) -> str:
    user = quote(found.login or "", safe="") + (f":{quote(found.password, safe='')}" if found.password else "")
    query = urlsplit(found.get_uri()).query if found.extra else ""
    return (
        f"postgresql+psycopg://{user + '@' if user else ''}{found.host or 'localhost'}:{found.port or 5432}"
        f"/{quote(found.schema or '', safe='')}{'?' + query if query else ''}"
    )
