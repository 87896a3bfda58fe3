"""Defines no DAG: it shows the broken files of replications/ as one import error on Airflow's page."""

from pathlib import Path

from kafka_replication.orchestration.airflow import raise_import_errors

raise_import_errors(Path(__file__).parent / "replications")
