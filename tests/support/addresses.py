"""Connections that are two addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_replication.connections import SparkConnection


@dataclass(frozen=True)
class Addresses:
    """`Connections` with two names, the addresses that every Apprise connection has, and further settings of the target's client."""

    source: str
    target: str
    alerts: tuple[str, ...] = ()
    of_target: Mapping[str, Any] = field(default_factory=dict)

    def kafka(self, connection_id: str) -> dict[str, Any]:
        more = self.of_target if connection_id == "target" else {}
        return {"bootstrap.servers": getattr(self, connection_id), **more}

    def service(self, connection_id: str, conn_type: str) -> dict[str, Any]:
        return dict(self.of_target)

    def spark(self, connection_id: str) -> SparkConnection:
        return SparkConnection("local[2,4]", {})

    def apprise(self, connection_id: str) -> tuple[str, ...]:
        return self.alerts
