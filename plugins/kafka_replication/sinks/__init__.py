"""The interface of a sink, which is where records are copied to. `kafka/write/sink.py`, `opensearch/` and `hbase/`
have sinks.
"""
