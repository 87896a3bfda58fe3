"""The environment for Spark's processes: that of this process without the variables that may hold a secret."""

from __future__ import annotations

import os

from kafka_replication.connections.environment import STORE_URL

# Connections, variables and configuration, for example the password of Airflow's own database; and what Airflow's task
# gets from its supervisor. Spark needs none of them: client settings reach its workers with their tasks.
PRIVATE = ("AIRFLOW_CONN_", "AIRFLOW_VAR_", "AIRFLOW__", "_AIRFLOW_", "__AIRFLOW_", STORE_URL)


def without_secrets() -> dict[str, str]:
    """This process's environment, for Spark's processes. Crash reports and logs of a JVM may show it."""
    return {name: value for name, value in os.environ.items() if not name.startswith(PRIVATE)}
