"""Where records are copied to: the interface of a sink. Kafka's implementation is `kafka/sink.py`."""
