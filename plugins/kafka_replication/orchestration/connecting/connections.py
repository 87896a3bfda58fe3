"""Airflow's connections: from its secrets backends, from ``AIRFLOW_CONN_*``, and from its UI."""

from __future__ import annotations

from typing import Any

from airflow.configuration import conf
from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from kafka_replication.connections.definition import (
    ALLOWLIST_OPTION,
    ALLOWLIST_SECTION,
    SEE,
    Definition,
    callback_allowlist,
)
from kafka_replication.connections.port import SparkConnection
from kafka_replication.model.errors import ConnectionMissing


class AirflowConnections:
    """Implements `kafka_replication.connections.port.Connections`; works inside tasks."""

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
    return Definition(
        connection_id=connection.conn_id,
        conn_type=connection.conn_type,
        host=connection.host,
        port=connection.port,
        schema=connection.schema,
        login=connection.login,
        password=connection.password,
        extra=connection.extra,
    )
