"""The Airflow DAG ``replications.watch``, which sends the alerts of all files in replications/."""

from pathlib import Path

from kafka_replication.orchestration.watch_dag import load_watch_dag

globals().update(load_watch_dag(Path(__file__).parent / "replications"))
