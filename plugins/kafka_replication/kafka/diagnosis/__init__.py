"""Finds out why a client cannot work: the meaning of Kafka's errors, and brokers' answers on our own connection."""
