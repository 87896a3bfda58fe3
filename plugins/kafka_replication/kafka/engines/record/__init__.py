"""The record engine: decodes each record with confluent-kafka and sends it."""
