"""Connections out of Airflow: to Kafka, to the watermark store, to Spark."""
