"""The interface through which the rest of the package gets a cluster's address and settings.

The meaning of an Airflow connection: the same for Airflow's tasks and for the command line.

The rules are those of the providers (apache-airflow-providers-apache-kafka 2.1.0, -apache-spark 6.3.4), so that a
connection that works with their hooks works here.

Connections without Airflow: the same ``AIRFLOW_CONN_<ID>`` variables, in their JSON form.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from kafka_replication.model.errors import BadInput, ConnectionMissing


@dataclass(frozen=True, slots=True)
class SparkConnection:
    """The address of Spark: ``master`` as spark-submit takes it, and the settings of the connection."""

    master: str
    conf: Mapping[str, str] = field(repr=False)  # maybe with spark.authenticate.secret


class Connections(Protocol):
    """Airflow's connections, or those of this process's environment."""

    def kafka(self, connection_id: str) -> dict[str, Any]:
        """librdkafka settings. Callbacks stay dotted paths, so that the settings can travel to Spark's executors.

        Raises ConnectionMissing, BadInput.
        """

    def service(self, connection_id: str, conn_type: str) -> dict[str, Any]:
        """The settings of a connection of another type: its ``url``, ``login``, ``password``, and what its extra has.

        Raises ConnectionMissing.
        """

    def spark(self, connection_id: str) -> SparkConnection:
        """The master and settings of Spark. Raises ConnectionMissing."""

    def apprise(self, connection_id: str) -> tuple[str, ...]:
        """The addresses of an Apprise connection; they hold secrets. Raises ConnectionMissing."""


SEE = "see docs/connections.md"
LOCAL_MASTER = "local[*,4]"

# librdkafka's settings whose value is a function. A connection names it by its dotted path.
CALLBACKS = ("error_cb", "throttle_cb", "stats_cb", "log_cb", "oauth_cb", "on_commit")
ALLOWLIST_SECTION, ALLOWLIST_OPTION = "apache_kafka", "callback_allowlist"
ALLOWLIST_VARIABLE = f"AIRFLOW__{ALLOWLIST_SECTION}__{ALLOWLIST_OPTION}".upper()

# A URI such as k8s://host has its scheme as the connection's type.
_SPARK_TYPES = ("spark", "k8s")
# Extras that the provider gives to spark-submit, as the settings that its options stand for.
_SPARK_EXTRAS = {
    "queue": "spark.yarn.queue",
    "namespace": "spark.kubernetes.namespace",
    "principal": "spark.kerberos.principal",
    "keytab": "spark.kerberos.keytab",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A connection as Airflow stores it; ``extra`` as a JSON object or as its text."""

    connection_id: str
    conn_type: str | None
    host: str | None = None
    port: int | None = None
    schema: str | None = None  # of a URL, such as https
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    extra: object = field(default=None, repr=False)

    def kafka_settings(self, allowed_callbacks: Collection[str]) -> dict[str, Any]:
        """The client settings of a Kafka connection. Raises ConnectionMissing, BadInput."""
        self._check_type("kafka")
        settings = self._extra()
        for name in CALLBACKS:
            path = settings.get(name)
            if isinstance(path, str) and path not in allowed_callbacks:
                raise BadInput(
                    f"connection {self.connection_id!r} sets {name} to {path!r}, which is not an allowed callback",
                    f"add it to {ALLOWLIST_OPTION} in section [{ALLOWLIST_SECTION}] of airflow.cfg, or to"
                    f" {ALLOWLIST_VARIABLE} for the command line; {SEE}",
                )
        return settings

    def service_settings(self, conn_type: str) -> dict[str, Any]:
        """The URL, login and extra of a connection of this type; a ``generic`` one needs no host. Raises
        ConnectionMissing.
        """
        self._check_type(conn_type)
        if not self.host and conn_type != "generic":
            raise ConnectionMissing(f"connection {self.connection_id!r} names no host", f"put it into the host; {SEE}")
        extra = self._extra()
        scheme = self.schema or ("https" if extra.get("use_ssl") else "http")
        host = self.host if self.host and "://" in self.host else f"{scheme}://{self.host or ''}"
        given = {"login": self.login, "password": self.password}
        address = f"{host}:{self.port}" if self.port else host
        filled = {name: value for name, value in extra.items() if value not in (None, "")}  # as a form leaves fields
        return {**filled, "url": address, **{name: value for name, value in given.items() if value}}

    def spark_connection(self) -> SparkConnection:
        """The master and settings of a Spark connection. Raises ConnectionMissing."""
        self._check_type(*_SPARK_TYPES)
        if not self.host:  # the provider would submit to YARN, or to "spark://"
            raise ConnectionMissing(
                f"connection {self.connection_id!r} names no Spark master",
                f"put it into the host, as in local[*]; {SEE}",
            )
        is_whole = self.conn_type == "spark" and ("://" in self.host or not self.port)
        host = self.host if is_whole else f"{self.conn_type}://{self.host}"
        extra = self._extra()
        conf = {setting: str(extra[name]) for name, setting in _SPARK_EXTRAS.items() if extra.get(name)}
        return SparkConnection(_with_attempts(f"{host}:{self.port}" if self.port else host), conf)

    def apprise_addresses(self) -> tuple[str, ...]:
        """The addresses of an Apprise connection, in the form of Airflow's Apprise provider: the extra's ``config`` is
        one ``{"path": address}``, or a list of these. Raises ConnectionMissing, which shows no address.
        """
        self._check_type("apprise", "generic")
        config = self._extra().get("config")
        entries = config if isinstance(config, list) else [config]
        named = [entry.get("path") if isinstance(entry, dict) else entry for entry in entries]
        addresses = tuple(address for address in named if isinstance(address, str) and address)
        if len(addresses) < len(named) or not named:
            raise ConnectionMissing(
                f"connection {self.connection_id!r} names no addresses to alert",
                f'give its extra the form {{"config": [{{"path": "mailto://..."}}]}}; {SEE}',
            )
        return addresses

    def _check_type(self, *allowed: str) -> None:
        if self.conn_type not in allowed:
            raise ConnectionMissing(
                f"connection {self.connection_id!r} is of type {self.conn_type!r}, not {allowed[0]}",
                f'give it the type "{allowed[0]}"; {SEE}',
            )

    def _extra(self) -> dict[str, Any]:
        extra = self.extra or {}
        if isinstance(extra, str):
            try:
                extra = json.loads(extra)
            except ValueError as e:
                raise ConnectionMissing(f"connection {self.connection_id!r}: its extra is not JSON: {e}", SEE) from e
        if not isinstance(extra, dict):
            raise ConnectionMissing(f"connection {self.connection_id!r}: its extra is not a JSON object", SEE)
        return dict(extra)


FIELDS = tuple(each.name for each in fields(Definition) if each.name != "connection_id")


def callback_allowlist(text: str | None) -> frozenset[str]:
    """The dotted paths in the value of ``[apache_kafka] callback_allowlist``, which commas separate."""
    return frozenset(path.strip() for path in (text or "").split(",") if path.strip())


def _with_attempts(master: str) -> str:
    """``local[2]`` becomes ``local[2,4]``: without a number, Spark does not repeat a task that failed."""
    if master == "local":
        return LOCAL_MASTER
    return f"{master[:-1]},4]" if re.fullmatch(r"local\[(\*|\d+)\]", master) else master


DEFAULT_SPARK = "spark_default"
STORE_URL = "KAFKA_REPLICATION_STORE_URL"


class EnvironmentConnections:
    """Implements `kafka_replication.connections.Connections`."""

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
    return Definition(connection_id=connection_id, **{name: value.get(name) for name in FIELDS})
