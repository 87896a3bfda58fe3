"""This package as ``airflow providers`` shows it. Imports nothing, because Airflow asks for it on each start.

The package has no connection type and no notifier of its own: `kafka`, `spark` and `apprise` belong to their providers.
"""

from __future__ import annotations


def get_provider_info() -> dict[str, str]:
    return {
        "package-name": "kafka-replication",
        "name": "Kafka replication",
        "description": "Exactly-once, bounded, verified replication of Kafka topics",
    }
