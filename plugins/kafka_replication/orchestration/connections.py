"""Connections as Airflow knows them: its secrets backends, ``AIRFLOW_CONN_*`` and the ones made in its UI."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from kafka_replication.connections.environment import SparkConnection, extra_of, master
from kafka_replication.model.errors import ConnectionMissing

_SEE = "see docs/connections.md"


class AirflowConnections:
    """Implements `kafka_replication.connections.environment.Connections`; works inside tasks."""

    def kafka(self, connection_id: str) -> dict[str, Any]:
        """librdkafka settings: the connection's ``extra``. Raises ConnectionMissing."""
        found = lookup(connection_id)
        if found.conn_type != "kafka":
            raise ConnectionMissing(
                f"connection {connection_id!r} is of type {found.conn_type!r}, not kafka", f"change its type, {_SEE}"
            )
        _ = found.extra_dejson  # makes Airflow mask the secrets in it wherever a log would show them
        return extra_of(connection_id, {"extra": found.extra})

    def spark(self, connection_id: str) -> SparkConnection:
        """The master as spark-submit takes it.

        Raises ConnectionMissing, where the provider would quietly submit to YARN.
        """
        found = lookup(connection_id)
        if not found.host:
            raise ConnectionMissing(
                f"connection {connection_id!r} names no Spark master", f"put it into the host, as in local[*]; {_SEE}"
            )
        whole = found.conn_type == "spark" and ("://" in found.host or not found.port)  # the provider's rule
        return SparkConnection(master(found.host if whole else f"{found.conn_type}://{found.host}", found.port), {})


def lookup(connection_id: str) -> Connection:
    """Airflow's connection. Raises ConnectionMissing."""
    try:
        found: Connection = Connection.get(connection_id)
    except AirflowNotFoundException as e:
        raise ConnectionMissing(
            f"connection {connection_id!r} is not defined", f"add it in Airflow, Admin, Connections; {_SEE}"
        ) from e
    return found
