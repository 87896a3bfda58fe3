"""The interface through which the rest of the package gets a cluster's address and settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


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
