"""The command line: ``kafka-replication`` and ``python -m kafka_replication.cli``."""

from kafka_replication.runtime.garbage import without_gc

with without_gc():
    from kafka_replication.cli.commands import app

__all__ = ["app"]
