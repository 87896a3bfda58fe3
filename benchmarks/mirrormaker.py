"""MirrorMaker 2 in dedicated mode, tuned as well as we know, as the peer of a copy."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from confluent_kafka.admin import AdminClient

from kafka_replication.kafka.metadata.offsets import high_watermarks
from kafka_replication.model.offsets import TopicPartition
from stack.artifacts import kafka_jars

PROPERTIES = """clusters = {alias}, dst
{alias}.bootstrap.servers = {source}
dst.bootstrap.servers = {target}
{alias}->dst.enabled = true
dst->{alias}.enabled = false
{alias}->dst.topics = {topic}
{alias}->dst.emit.heartbeats.enabled = false
{alias}->dst.emit.checkpoints.enabled = false
{alias}->dst.sync.topic.acls.enabled = false
emit.heartbeats.enabled = false
tasks.max = 2
replication.factor = 1
offset-syncs.topic.replication.factor = 1
config.storage.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
{alias}.consumer.max.poll.records = 20000
{alias}.consumer.auto.offset.reset = earliest
dst.producer.compression.type = lz4
dst.producer.batch.size = 1000000
dst.producer.linger.ms = 20
dst.producer.buffer.memory = 67108864
"""


@contextmanager
def running(folder: Path, source: str, target: str, topic: str, alias: str) -> Iterator[subprocess.Popen[bytes]]:
    """MirrorMaker, started; killed at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "mm2.properties"
    settings.write_text(PROPERTIES.format(alias=alias, source=source, target=target, topic=topic))
    command = [
        "java",
        "-Xmx1g",
        "-cp",
        f"{kafka_jars()}/*",
        "org.apache.kafka.connect.mirror.MirrorMaker",
        str(settings),
    ]
    with (folder / "mm2.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=folder)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def copy(folder: Path, source: str, target: str, topic: str, records: int, alias: str) -> float:
    """Copy a whole topic to ``alias.topic``; the seconds from its first record on the target to its last, without its
    start of some 7 s.
    """
    with running(folder, source, target, topic, alias) as process:
        return _await(process, AdminClient({"bootstrap.servers": target}), f"{alias}.{topic}", records)


def start_to_end(folder: Path, source: str, target: str, topic: str, records: int, alias: str) -> tuple[float, float]:
    """Copy a whole topic; the seconds from MirrorMaker's start to the last record, and its CPU seconds until then."""
    started = time.monotonic()
    with running(folder, source, target, topic, alias) as process:
        _await(process, AdminClient({"bootstrap.servers": target}), f"{alias}.{topic}", records)
        used = psutil.Process(process.pid).cpu_times()
        return time.monotonic() - started, used.user + used.system


def _await(process: subprocess.Popen[bytes], admin: AdminClient, topic: str, records: int) -> float:
    first: tuple[float, int] | None = None
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit("MirrorMaker ended; see mm2.log")
        count = _count(admin, topic)
        if count and first is None:
            first = (time.monotonic(), count)
        if first and count >= records:
            seconds = time.monotonic() - first[0]
            return seconds * records / max(1, records - first[1])  # as if all had been timed
        time.sleep(0.05)
    raise SystemExit("MirrorMaker copied too little within 300 s")


def _count(admin: AdminClient, topic: str) -> int:
    found = admin.list_topics(timeout=10).topics.get(topic)
    if found is None or not found.partitions:
        return 0
    return sum(high_watermarks(admin, [TopicPartition(topic, number) for number in found.partitions]).values())
