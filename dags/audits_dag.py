"""One Airflow DAG ``<name>.audit`` for each file in replications/; replication_import_errors.py names the broken
ones.
"""

from pathlib import Path

from kafka_replication.orchestration.audit_dag import load_audit_dags

globals().update(load_audit_dags(Path(__file__).parent / "replications"))
