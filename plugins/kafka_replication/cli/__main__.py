"""``python -m kafka_replication.cli``."""

from kafka_replication.cli import app

app()
