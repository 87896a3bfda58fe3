"""Connections to two clusters without any security."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kafka_replication.connections import SparkConnection


@dataclass(frozen=True, slots=True)
class Bootstraps:
    """`kafka_replication.connections.Connections` by address: ``source`` and ``target``."""

    source: str
    target: str

    def kafka(self, connection_id: str) -> dict[str, Any]:
        return {"bootstrap.servers": self.source if connection_id == "source" else self.target}

    def service(self, _: str, __: str) -> dict[str, Any]:
        raise AssertionError("both sides are Kafka")

    def apprise(self, _: str) -> tuple[str, ...]:
        return ()

    def spark(self, _: str) -> SparkConnection:
        return SparkConnection("local[2,4]", {})
