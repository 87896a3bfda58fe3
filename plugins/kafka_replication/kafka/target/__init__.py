"""Kafka as the target of a replication: `KafkaTarget` implements `targets.port.Target`."""

from kafka_replication.kafka.target.kafka_target import KafkaTarget

__all__ = ["KafkaTarget"]
