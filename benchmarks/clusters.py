"""The clusters of ``make bench``, one context for each way that they lie to each other."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient

from kafka_replication.connections import SparkConnection
from kafka_replication.kafka.offsets import high_watermarks
from kafka_replication.model.offsets import TopicPartition
from stack.kafka_cluster import BENCH, KafkaCluster
from stack.ports import LOOPBACK, free_ports
from tests.faults.proxy import Proxy
from tests.support.clusters import started
from tests.support.tls import TlsCluster, tls_cluster

ROUND_TRIP = 0.02  # seconds


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two clusters and a folder; the client settings by which copiers reach them.

    It is also the `kafka_replication.connections.Connections` of a run inside of this process.
    """

    folder: Path
    clusters: tuple[KafkaCluster, KafkaCluster]
    source: Mapping[str, Any]
    target: Mapping[str, Any]

    @property
    def brokers(self) -> list[int]:
        """Their pids."""
        return [broker.pid for cluster in self.clusters for broker in cluster.brokers if broker.pid is not None]

    @property
    def replicas(self) -> int:
        """Of each topic on the target."""
        return min(3, self.clusters[1].size)

    @cached_property
    def admin(self) -> AdminClient:
        """Of the target, past its proxy and its logins."""
        return AdminClient({"bootstrap.servers": self.clusters[1].bootstrap, "log_level": 0})

    def count(self, topic: str) -> int:
        """Offsets that a topic of the target has; 0 while there is none."""
        partitions = self.admin.list_topics(topic, timeout=30).topics[topic].partitions
        return sum(high_watermarks(self.admin, [TopicPartition(topic, number) for number in partitions]).values())

    def forget(self, name: str) -> None:
        """Delete all topics of the target that have this name as one of their parts."""
        if topics := [topic for topic in self.admin.list_topics(timeout=30).topics if name in topic.split(".")]:
            for deleted in self.admin.delete_topics(topics).values():
                deleted.result(60)

    def kafka(self, connection_id: str) -> dict[str, Any]:
        return dict(self.source if connection_id == "source" else self.target)

    def service(self, _: str, __: str) -> dict[str, Any]:
        raise AssertionError("both sides are Kafka")

    def apprise(self, _: str) -> tuple[str, ...]:
        return ()

    def spark(self, _: str) -> SparkConnection:
        return SparkConnection("local[2,4]", {})


@contextmanager
def _folder() -> Iterator[Path]:
    os.environ[BENCH] = "1"  # brokers as production has them
    folder = Path(tempfile.mkdtemp(prefix="kr-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def plain(brokers: int = 1) -> Iterator[Pair]:
    """One broker as the source, and so many as the target."""
    with _folder() as folder:
        source, target = KafkaCluster("source", folder), KafkaCluster("target", folder, brokers)
        with started(source, target):
            yield Pair(
                folder=folder,
                clusters=(source, target),
                source={"bootstrap.servers": source.bootstrap},
                target={"bootstrap.servers": target.bootstrap},
            )


@contextmanager
def distant() -> Iterator[Pair]:
    """One broker on each side; a proxy delays all that goes to and from the target."""
    with _folder() as folder, ExitStack() as stack:
        behind, public = free_ports(2)
        source, target = KafkaCluster("source", folder), KafkaCluster("target", folder, proxied=[(behind, public)])
        stack.enter_context(started(source, target))
        proxy = stack.enter_context(closing(Proxy(public, behind, frames=False)))
        proxy.delay(ROUND_TRIP / 2)
        yield Pair(
            folder=folder,
            clusters=(source, target),
            source={"bootstrap.servers": source.bootstrap},
            target={"bootstrap.servers": f"{LOOPBACK}:{public}"},
        )


@contextmanager
def counted() -> Iterator[tuple[Pair, Counter[int]]]:
    """One broker on each side, each behind a proxy; what the proxies count by API key, until now, of both together."""
    with _folder() as folder, ExitStack() as stack:
        ports = free_ports(4)
        lines = {"source": (ports[0], ports[1]), "target": (ports[2], ports[3])}
        source, target = (KafkaCluster(name, folder, proxied=[line]) for name, line in lines.items())
        stack.enter_context(started(source, target))
        seen = Counter[int]()
        for behind, public in lines.values():
            stack.enter_context(closing(Proxy(public, behind, counted=seen)))
        yield (
            Pair(
                folder=folder,
                clusters=(source, target),
                source={"bootstrap.servers": f"{LOOPBACK}:{lines['source'][1]}"},
                target={"bootstrap.servers": f"{LOOPBACK}:{lines['target'][1]}"},
            ),
            seen,
        )


@contextmanager
def secured() -> Iterator[Pair]:
    """One broker on each side; copiers meet TLS and log in by SCRAM-SHA-512."""
    with _folder() as folder, tls_cluster(folder) as source, tls_cluster(folder) as target:
        yield Pair(
            folder=folder,
            clusters=(source.cluster, target.cluster),
            source=_logged_in(source),
            target=_logged_in(target),
        )


def _logged_in(cluster: TlsCluster) -> dict[str, Any]:
    user = cluster.scram("bench", cluster.password)
    return {**user, **cluster.tls("LOGIN", security_protocol="SASL_SSL")}
