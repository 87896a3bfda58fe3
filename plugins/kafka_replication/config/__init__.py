"""A replication's YAML file: what may stand in it, how it is read, and what is said about what is wrong with it."""

from kafka_replication.config.model import Copy, Replication, Section

__all__ = ["Copy", "Replication", "Section"]
