"""Clusters for as long as tests need them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from stack.kafka_cluster import KafkaCluster, start_all


@contextmanager
def started(*clusters: KafkaCluster) -> Iterator[None]:
    """All started at the same time. In the end their brokers are killed, as nobody needs the data."""
    try:
        start_all(clusters)
        yield
    finally:
        brokers = [broker for cluster in clusters for broker in cluster.brokers]
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda broker: broker.kill(), brokers))
