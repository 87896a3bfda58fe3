"""Replicate Kafka topics in bounded, verified batches."""

__version__ = "0.1.0"
