"""Connections without Airflow: the same ``AIRFLOW_CONN_<ID>`` variables, in their JSON form."""

from __future__ import annotations

import difflib
import json
import os
from typing import Any

from kafka_replication.connections.definition import (
    ALLOWLIST_VARIABLE,
    LOCAL_MASTER,
    SEE,
    Definition,
    callback_allowlist,
)
from kafka_replication.connections.port import SparkConnection
from kafka_replication.model.errors import ConnectionMissing

DEFAULT_SPARK = "spark_default"
STORE_URL = "KAFKA_REPLICATION_STORE_URL"


class EnvironmentConnections:
    """Implements `kafka_replication.connections.port.Connections`."""

    def kafka(self, connection_id: str) -> dict[str, Any]:
        return _read(connection_id).kafka_settings(callback_allowlist(os.environ.get(ALLOWLIST_VARIABLE)))

    def service(self, connection_id: str, conn_type: str) -> dict[str, Any]:
        return _read(connection_id).service_settings(conn_type)

    def spark(self, connection_id: str) -> SparkConnection:
        """The settings of Spark. Without a variable for the default connection, Spark runs on this machine."""
        if connection_id == DEFAULT_SPARK and variable(connection_id) not in os.environ:
            return SparkConnection(LOCAL_MASTER, {})
        return _read(connection_id).spark_connection()

    def apprise(self, connection_id: str) -> tuple[str, ...]:
        return _read(connection_id).apprise_addresses()


def variable(connection_id: str) -> str:
    return f"AIRFLOW_CONN_{connection_id.upper()}"


def _read(connection_id: str) -> Definition:
    name = variable(connection_id)
    text = os.environ.get(name)
    if text is None:
        known = [name.removeprefix(variable("")).lower() for name in os.environ if name.startswith(variable(""))]
        near = difflib.get_close_matches(connection_id.lower(), known, n=1)
        question = f", did you mean {near[0]!r}?" if near else ""
        raise ConnectionMissing(
            f"connection {connection_id!r} is not defined{question}",
            f"set {name} to its JSON form, {SEE}; outside of Airflow, connections are read from such variables alone,"
            " not from Airflow's page",
        )
    try:
        value = json.loads(text)
    except ValueError as e:
        raise ConnectionMissing(f"{name} is not JSON ({e})", f"use the JSON form, not the URI form, {SEE}") from e
    if not isinstance(value, dict):
        raise ConnectionMissing(f"{name} is not a JSON object", f"use the JSON form, {SEE}")
    return Definition(
        connection_id=connection_id,
        conn_type=value.get("conn_type"),
        host=value.get("host"),
        port=value.get("port"),
        schema=value.get("schema"),
        login=value.get("login"),
        password=value.get("password"),
        extra=value.get("extra"),
    )
