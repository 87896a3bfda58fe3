"""The interface of a sink, which is where records are copied to. Kafka's implementation is `kafka/write/sink.py`."""
