"""What Airflow loads from this folder; everything else is in the package, which .airflowignore keeps Airflow from
executing.
"""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin


class KafkaReplicationPlugin(AirflowPlugin):
    """Kafka replication's part of Airflow."""

    name = "kafka_replication"
