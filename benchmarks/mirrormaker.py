"""MirrorMaker 2 in dedicated mode, tuned as well as we know, as the peer of a copy."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from benchmarks.clusters import Pair
from benchmarks.usage import Usage, Used
from stack.artifacts import kafka_jars
from stack.java import java

GIVE_UP = 600.0  # seconds
PROPERTIES = """clusters = {alias}, dst
{alias}->dst.enabled = true
dst->{alias}.enabled = false
{alias}->dst.topics = {topic}
{alias}->dst.emit.heartbeats.enabled = false
{alias}->dst.emit.checkpoints.enabled = false
{alias}->dst.sync.topic.acls.enabled = false
emit.heartbeats.enabled = false
tasks.max = 2
replication.factor = {replicas}
offset-syncs.topic.replication.factor = 1
config.storage.replication.factor = {replicas}
offset.storage.replication.factor = {replicas}
status.storage.replication.factor = {replicas}
{alias}.consumer.max.poll.records = 20000
{alias}.consumer.auto.offset.reset = earliest
dst.producer.compression.type = lz4
dst.producer.batch.size = 1000000
dst.producer.linger.ms = 20
dst.producer.buffer.memory = 67108864
"""
_SAME = ("bootstrap.servers", "security.protocol", "sasl.mechanism")
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@contextmanager
def running(pair: Pair, topic: str, alias: str, more: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """MirrorMaker with ``more`` properties, started; killed at the end."""
    folder = pair.folder / alias
    folder.mkdir()
    settings = folder / "mm2.properties"
    sides = {alias: pair.source, "dst": pair.target}
    lines = [f"{side}.{key} = {value}\n" for side, client in sides.items() for key, value in _of_java(client).items()]
    settings.write_text(PROPERTIES.format(alias=alias, topic=topic, replicas=pair.replicas) + "".join(lines) + more)
    command = [
        java(),
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


def _of_java(client: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of librdkafka as Java's clients call them."""
    same = {
        name: client[name] for name in ("bootstrap.servers", "security.protocol", "sasl.mechanism") if name in client
    }
    if "ssl.ca.location" in client:
        same |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": client["ssl.ca.location"]}
    if "sasl.username" in client:
        login = f'username="{client["sasl.username"]}" password="{client["sasl.password"]}"'
        same |= {"sasl.jaas.config": f"{_SCRAM} required {login};"}
    return same


def copy(pair: Pair, topic: str, records: int, alias: str) -> Used:
    """Copy a whole topic to ``alias.topic``: from the last look that saw nothing there to the last record.

    Its start of some 7 s is left out; that its JVM is still warming up is not.
    """
    with running(pair, topic, alias) as process, Usage([process.pid], pair.brokers) as usage:
        _await(process, lambda: pair.count(f"{alias}.{topic}"), records, usage.begin)
    return usage.used


def start_to_end(pair: Pair, topic: str, records: int, alias: str) -> Used:
    """Copy a whole topic: from MirrorMaker's start to the last record."""
    with running(pair, topic, alias) as process, Usage([process.pid], pair.brokers) as usage:
        _await(process, lambda: pair.count(f"{alias}.{topic}"), records, lambda: None)
    return usage.used


def _await(
    process: subprocess.Popen[bytes], count: Callable[[], int], records: int, nothing_yet: Callable[[], None]
) -> None:
    deadline = time.monotonic() + GIVE_UP
    while (there := count()) < records:
        if not there:
            nothing_yet()
        if process.poll() is not None:
            raise SystemExit("MirrorMaker ended; see mm2.log")
        if time.monotonic() > deadline:
            raise SystemExit(f"MirrorMaker copied {there:,} of {records:,} records within {GIVE_UP:.0f} s")
        time.sleep(0.05)
