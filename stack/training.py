"""One start of a broker that makes what quickens the later ones of its version (`quick_start`).

The tests, which start dozens, make it before their first.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer

from stack.artifacts import CURRENT, Release, kafka_jars
from stack.demo_data import create_topic
from stack.errors import StackError
from stack.java import java
from stack.kafka_cluster import JVM_QUICK, KafkaCluster
from stack.quick_start import ARCHIVE, STORAGE, QuickStart

# Java writes the archive when it ends.
SECONDS = 120
TOPIC = "training"


def make(state: Path, release: Release = CURRENT) -> None:
    """Make the archive and the storage unless that was tried before. The broker lies in ``state`` meanwhile.

    Never fails: a broker starts without them.
    """
    with contextlib.suppress(StackError, KafkaException, OSError):
        prepared = QuickStart.of(java(), kafka_jars(release=release), JVM_QUICK)
        if prepared is None or prepared.folder.exists():
            return
        with prepared.making() as folder:
            if folder is not None:
                _train(folder, state, release)


def _train(into: Path, state: Path, release: Release) -> None:
    archiving = (f"-XX:ArchiveClassesAtExit={into / ARCHIVE}",)
    cluster = KafkaCluster("training", state, release=release, archiving=archiving)
    try:
        cluster.prepare()
        if not release.zookeeper:
            shutil.copytree(cluster.broker(0).data, into / STORAGE)
        cluster.start()
        _use(cluster.bootstrap)
        process = cluster.broker(0).process
        if process is not None:
            process.send(signal.SIGTERM)
            process.wait(SECONDS)
    finally:
        cluster.wipe()


def _use(bootstrap: str) -> None:
    """One record, written in a transaction and read by a group: the classes that every test needs."""
    create_topic(bootstrap, TOPIC, 1)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": TOPIC, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(TOPIC, b"one")
    producer.commit_transaction(30)
    reading = {"auto.offset.reset": "earliest", "isolation.level": "read_committed", "log_level": 0}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": TOPIC, **reading})
    try:
        consumer.subscribe([TOPIC])
        consumer.poll(30)
    finally:
        consumer.close()
