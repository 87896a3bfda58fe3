"""The part that Airflow loads from this folder; .airflowignore keeps it from executing the package."""

from __future__ import annotations

from kafka_replication.orchestration.plugin import KafkaReplicationPlugin

__all__ = ["KafkaReplicationPlugin"]
