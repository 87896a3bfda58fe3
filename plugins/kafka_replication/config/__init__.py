"""A replication's YAML file: the model of its keys, the reading of it, and the messages about its mistakes."""

from kafka_replication.config.model import Copy, Replication, Section
from kafka_replication.config.topics import PipelineDefinition

__all__ = ["Copy", "PipelineDefinition", "Replication", "Section"]
