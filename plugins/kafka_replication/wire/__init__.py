"""Kafka's protocol where confluent-kafka does not reach: whole record batches, and the requests that carry them.

Connections, requests and answers of single brokers. Which broker to ask, and what an answer means, is decided by
`kafka_replication.kafka`. Protocol: https://kafka.apache.org/protocol.html
"""
