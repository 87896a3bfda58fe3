"""The ZooKeeper of a cluster whose brokers know no KRaft: its process, and what their properties have instead."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from stack.errors import StackError
from stack.java import java
from stack.ports import LOOPBACK, answers
from stack.processes import ProcessRecord, end, launch, tail

# A killed broker may come back when its session has ended. Until then it ends with an error that says this.
SESSION_MS, STILL_THERE = 4000, "NodeExists"
STOP_SECONDS = 15
_OPTIONS = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.admin.enableServer=false")
_MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"
_OF_KRAFT = ("process.roles", "node.id", "controller.", "metadata.")


def start(folder: Path, port: int, jars: Path, log_settings: Path, deadline: float) -> None:
    """Start the ZooKeeper of the cluster in this folder unless it runs, and wait until it answers. Its data is kept."""
    record, log = folder / "zookeeper.pid", folder / "zookeeper.log"
    if not _lives(record):
        arguments = [str(port), str(folder / "zookeeper"), str(SESSION_MS // 4)]  # the last one is its tick
        options = [*_OPTIONS, f"-Dlog4j2.configurationFile={log_settings}", "-cp", f"{jars}/*"]
        launch([java(), *options, _MAIN, *arguments], log, record, cwd=folder)
    while not answers(port):
        if time.monotonic() > deadline or not _lives(record):
            raise StackError(f"ZooKeeper in {folder} has not started; the end of {log}:\n{tail(log)}", "see the log")
        time.sleep(0.1)


def await_topics(bootstrap: str, data: Path, deadline: float) -> None:
    """Return when a broker that has just started knows the topics of its data, with their leaders: until its controller
    has told it, it says that there are none.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    stored = {folder.name.rpartition("-")[0] for folder in data.glob("*-[0-9]*") if not folder.name.endswith("-delete")}
    while True:
        with contextlib.suppress(KafkaException):
            led = {
                name
                for name, topic in admin.list_topics(timeout=5).topics.items()
                if all(partition.leader >= 0 for partition in topic.partitions.values())
            }
            if stored <= led:
                return
        if time.monotonic() > deadline:
            raise StackError(f"{bootstrap} does not know all topics of {data}", "see its log")
        time.sleep(0.1)


def stop(folder: Path) -> None:
    """SIGKILL: it writes everything before it answers. Stopping what does not run changes nothing."""
    end(folder / "zookeeper.pid", signal.SIGKILL, f"ZooKeeper in {folder}", STOP_SECONDS)


def properties(lines: Mapping[str, str], port: int) -> dict[str, str]:
    """The properties of a broker with KRaft, for one with this ZooKeeper."""
    return {
        **{key: value for key, value in lines.items() if not key.startswith(_OF_KRAFT)},
        "broker.id": lines["node.id"],
        "zookeeper.connect": f"{LOOPBACK}:{port}",
        "zookeeper.session.timeout.ms": str(SESSION_MS),
        "listeners": lines["advertised.listeners"],
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT",
    }


def _lives(record: Path) -> bool:
    process = ProcessRecord.read(record)
    return process is not None and process.alive
