"""The plugin by which Airflow shows that this package is installed."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin


class KafkaReplicationPlugin(AirflowPlugin):
    """Kafka replication's part of Airflow."""

    name = "kafka_replication"
