"""All Airflow DAGs of the files in replications/. A broken file leaves the others alone; replication_import_errors.py
names it.
"""

from pathlib import Path

from kafka_replication.orchestration.airflow import dags

globals().update(dags(Path(__file__).parent / "replications"))
