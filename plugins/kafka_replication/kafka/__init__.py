"""The only place that imports confluent_kafka."""
