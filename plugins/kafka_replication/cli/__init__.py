"""The command line: ``kafka-replication`` and ``python -m kafka_replication.cli``."""

from kafka_replication.runtime.garbage import loading

with loading():
    from kafka_replication.cli.commands import app

__all__ = ["app"]
