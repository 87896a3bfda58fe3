"""PySpark's daemon for local mode: it imports the modules of a worker once, before it forks workers.

``spark.python.daemon.module`` names this module. Importing creates no client and starts no thread, so forking is safe.
"""

from __future__ import annotations

import importlib

from kafka_replication.runtime.garbage import loading
from kafka_replication.spark.start import prefer_linked

PRELOADED = (
    "pyspark.worker",
    "kafka_replication.spark.worker",
    "kafka_replication.kafka.record_engine",
    "kafka_replication.kafka.ledger",
    "kafka_replication.kafka.reachability",
    "kafka_replication.kafka.read_back",
    "kafka_replication.kafka.sink",
)


def preload() -> None:
    """Import the modules that exist. A worker reports missing ones itself (`driver.MISSING`)."""
    for name in PRELOADED:
        try:
            importlib.import_module(name)
        except Exception:  # noqa: BLE001  # any error of foreign code; the worker meets it again
            return
    # What reads and writes jobs and the ledger is built once for all workers and their threads.
    from kafka_replication.ledger import codec
    from kafka_replication.ledger.entries import Position, Receipt, Verified
    from kafka_replication.spark.jobs import BUNDLE, JOB, RESULTS

    for adapter in (JOB, BUNDLE, RESULTS):
        adapter.rebuild()
    codec.build(Position, Receipt, Verified)


def main() -> None:
    prefer_linked()
    with loading():  # so no worker's garbage collection touches, and copies, the pages it shares with the others
        preload()
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
