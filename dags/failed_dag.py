"""One Airflow DAG ``<name>.failed`` for each file in replications/, for the records that could not be copied."""

from pathlib import Path

from kafka_replication.orchestration.failed_dag import load_failed_dags

globals().update(load_failed_dags(Path(__file__).parent / "replications"))
