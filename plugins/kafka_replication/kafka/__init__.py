"""Kafka clients, and Kafka as ledger, copy engine and sink: the only package that imports confluent_kafka."""

from confluent_kafka.admin import AdminClient

__all__ = ["AdminClient"]
