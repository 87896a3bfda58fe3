"""Connections without Airflow: the same ``AIRFLOW_CONN_<ID>`` variables, in their JSON form."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kafka_replication.model.errors import ConnectionMissing

STORE_URL = "KAFKA_REPLICATION_STORE_URL"


@dataclass(frozen=True, slots=True)
class SparkConnection:
    """Where Spark runs; ``master`` as spark-submit takes it."""

    master: str
    conf: Mapping[str, str]


class Connections(Protocol):
    """Where client settings come from: Airflow, or this process's environment."""

    def kafka(self, connection_id: str) -> dict[str, Any]:
        """librdkafka settings, as the ``extra`` of a connection of type ``kafka``. Raises ConnectionMissing."""

    def spark(self, connection_id: str) -> SparkConnection: ...


class EnvironmentConnections:
    """Reads ``AIRFLOW_CONN_*``; a missing Spark connection means the local machine."""

    def kafka(self, connection_id: str) -> dict[str, Any]:
        return extra_of(connection_id, _read(connection_id, "kafka"))

    def spark(self, connection_id: str) -> SparkConnection:
        if variable(connection_id) not in os.environ:
            return SparkConnection("local[*,4]", {})
        value = _read(connection_id, "spark")
        host, port = str(value.get("host") or "local[*,4]"), value.get("port")
        return SparkConnection(master(host, port), {})


def master(host: str, port: int | None) -> str:
    """``local[*]`` becomes ``local[*,4]``, and ``local[2]`` ``local[2,4]``: without a number a task that dies is not
    tried again.
    """
    if host == "local":
        return "local[*,4]"
    if re.fullmatch(r"local\[(\*|\d+)\]", host):
        return f"{host[:-1]},4]"
    return f"{host}:{port}" if port else host


def variable(connection_id: str) -> str:
    return f"AIRFLOW_CONN_{connection_id.upper()}"


def extra_of(connection_id: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """The ``extra`` of a connection as a dictionary, given as one or as JSON text."""
    extra = value.get("extra") or {}
    if isinstance(extra, str):
        try:
            extra = json.loads(extra)
        except ValueError as e:
            raise ConnectionMissing(
                f"connection {connection_id!r}: its extra is not JSON: {e}", "see docs/connections.md"
            ) from e
    if not isinstance(extra, dict):
        raise ConnectionMissing(
            f"connection {connection_id!r}: its extra is not a JSON object", "see docs/connections.md"
        )
    return extra


def _read(connection_id: str, kind: str) -> dict[str, Any]:
    name = variable(connection_id)
    text = os.environ.get(name)
    if text is None:
        raise ConnectionMissing(
            f"connection {connection_id!r} is not defined", f"set {name} to its JSON form, see docs/connections.md"
        )
    try:
        value = json.loads(text)
    except ValueError as e:
        raise ConnectionMissing(
            f"{name} is not JSON ({e})", "use the JSON form, not the URI form, see docs/connections.md"
        ) from e
    if not isinstance(value, dict) or value.get("conn_type") != kind:
        raise ConnectionMissing(
            f"{name} is no connection of type {kind}", f'give it "conn_type": "{kind}", see docs/connections.md'
        )
    return value
