"""The only place that imports confluent_kafka."""

from confluent_kafka.admin import AdminClient

__all__ = ["AdminClient"]
