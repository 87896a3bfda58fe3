"""The embedded default stack: real Kafka clusters and Airflow standalone on this machine, for `make demo` and the
tests.
"""
