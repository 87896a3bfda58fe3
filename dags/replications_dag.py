"""One Airflow DAG for each file in replications/. A broken file leaves the others alone; replication_import_errors.py
names it.
"""

from pathlib import Path

from kafka_replication.orchestration.dag_factory import load_dags

globals().update(load_dags(Path(__file__).parent / "replications"))
