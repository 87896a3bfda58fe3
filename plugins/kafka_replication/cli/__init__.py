"""The command line: ``kafka-replication`` and ``python -m kafka_replication.cli``."""

from kafka_replication.runtime.loading import uncollected

with uncollected():
    from kafka_replication.cli.commands import app

__all__ = ["app"]
