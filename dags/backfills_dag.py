"""One Airflow DAG ``<name>.backfill`` for each file in replications/, started by hand for a range that its form
names.
"""

from pathlib import Path

from kafka_replication.orchestration.backfill_dag import load_backfill_dags

globals().update(load_backfill_dags(Path(__file__).parent / "replications"))
