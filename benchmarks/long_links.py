"""Copying over a long line: ``python -m benchmarks.long_links``.

A proxy delays what goes to and from one cluster, by 0, 50 and 200 ms there and back. One partition of records that
cannot be compressed is copied with the product's settings, and with others that could help. The delay is the proxy's:
the kernel's own buffers, whose size follows the round trips that the kernel sees, are not part of this.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # re-exported without saying so

from benchmarks.workload import send
from kafka_replication.config import Replication
from kafka_replication.connections import SparkConnection
from kafka_replication.copying.engine import CopyTask
from kafka_replication.runs import steps
from kafka_replication.runs.leasing import EVERYTHING, leased
from kafka_replication.runs.run import Request, open_run
from kafka_replication.spark import worker
from kafka_replication.spark.jobs import Job
from kafka_replication.store import open_store
from stack.kafka_cluster import KafkaCluster, start_all, stop_all
from stack.ports import LOOPBACK, free_ports
from tests.faults.proxy import Proxy

TOPIC = "long"
ROUND_TRIPS = (0.0, 0.05, 0.2)
MIB = 1 << 20
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "as it is": {},
    "fetch 1 MiB": {"source": {"fetch.message.max.bytes": MIB}},
    "fetch 16 MiB": {"source": {"fetch.message.max.bytes": 16 * MIB, "queued.max.messages.kbytes": 64 << 10}},
    "queue 128 MiB": {"target": {"queue.buffering.max.kbytes": 128 << 10}},
    "linger 100 ms": {"target": {"linger.ms": 100}},
    "topic with max.message.bytes 16 MiB": {"topic": {"max.message.bytes": 16 * MIB}},
    "the same, batch.size 1 MiB": {"topic": {"max.message.bytes": 16 * MIB}, "target": {"batch.size": MIB}},
}


@dataclass(frozen=True)
class Line:
    """Two clusters, with a proxy in front of each."""

    sides: Mapping[str, KafkaCluster]
    proxies: Mapping[str, Proxy]
    folder: Path
    more: Mapping[str, dict[str, Any]]

    def kafka(self, connection_id: str) -> dict[str, Any]:
        address = f"{LOOPBACK}:{self.proxies[connection_id].port}"
        return {"bootstrap.servers": address, **self.more.get(connection_id, {})}

    def spark(self, _: str) -> SparkConnection:
        raise AssertionError("nothing runs on Spark here")

    def service(self, _: str, __: str) -> dict[str, Any]:
        raise AssertionError("both sides are Kafka")

    def apprise(self, _: str) -> tuple[str, ...]:
        return ()

    def copy(self, name: str, distant: str, round_trip: float) -> float:
        """MB/s of copying the topic, with one cluster this far away."""
        replication = Replication.model_validate(
            {
                "name": name,
                "source": {"connection": "source"},
                "target": {"connection": "target"},
                "topics": {"include": [TOPIC], "rename": f"{name}.{{topic}}"},
                "target_topics": {"config": self.more.get("topic", {})},
            }
        )
        store = open_store(f"sqlite:///{self.folder}/{name}.db")
        with leased(open_run(replication, self, store, name), EVERYTHING) as run:
            (planned,) = steps.prepare(run, Request()).to_copy
            assert planned.copy is not None
            task = CopyTask(
                key=planned.key, range=planned.copy, ids=planned.ids, generation=planned.generation, run_id=name
            )
            job = Job(replication=replication, source=run.clusters.source, target=run.clusters.target_connection)
            self.proxies[distant].delay(round_trip / 2)
            started = time.monotonic()
            try:
                result = worker.copy(worker.Tools(job), task)
            finally:
                self.proxies[distant].delay(0)
        assert result.error is None, result
        return result.bytes / 1e6 / (time.monotonic() - started)


@contextmanager
def clusters(folder: Path) -> Iterator[tuple[dict[str, KafkaCluster], dict[str, Proxy]]]:
    ports = free_ports(4)
    pairs = {"source": (ports[0], ports[1]), "target": (ports[2], ports[3])}
    sides = {side: KafkaCluster(side, folder, 1, proxied=[pair]) for side, pair in pairs.items()}
    start_all(list(sides.values()))
    try:
        with ExitStack() as stack:
            yield (
                sides,
                {side: stack.enter_context(closing(Proxy(public, port))) for side, (port, public) in pairs.items()},
            )
    finally:
        stop_all(list(sides.values()))


def fill(bootstrap: str, records: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "batch.size": MIB})
    pool = [os.urandom(1024) for _ in range(2000)]
    send(producer, TOPIC, 1, ((b"%d" % number, pool[number % 2000]) for number in range(records)))


def main(records: int = int(os.environ.get("RECORDS", "100000"))) -> None:
    folder = Path(tempfile.mkdtemp(prefix="long-links-"))
    try:
        with clusters(folder) as (sides, proxies):
            fill(sides["source"].bootstrap, records)
            print(f"{records:,} records of 1 KiB, one partition; MB/s\n")
            print(f"| settings | {' | '.join(f'{side} {trip * 1000:.0f} ms' for side, trip in _cases())} |")
            print(f"| --- |{' --- |' * len(_cases())}")
            for number, (variant, more) in enumerate(VARIANTS.items()):
                line = Line(sides, proxies, folder, more)
                found = [line.copy(f"long-{number}-{side}-{trip * 1000:.0f}", side, trip) for side, trip in _cases()]
                print(f"| {variant} | {' | '.join(f'{speed:.1f}' for speed in found)} |", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _cases() -> list[tuple[str, float]]:
    return [(side, trip) for side in ("source", "target") for trip in ROUND_TRIPS]


if __name__ == "__main__":
    main()
