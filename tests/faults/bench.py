"""The clusters that faults are done to: a source of 1 broker, a target of 3, a proxy in front of each.

The product goes through the proxies; the load, the judge and the sampler speak to the brokers directly.
"""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from kafka_replication.ledger.entries import RECEIPTS
from stack.kafka_cluster import Broker, KafkaCluster
from stack.ports import LOOPBACK, free_ports
from tests.faults.proxy import Proxy
from tests.faults.row_side import RowSide
from tests.faults.row_side import start as start_hbase
from tests.faults.search_side import SearchSide
from tests.faults.search_side import start as start_opensearch
from tests.support.checker import Record, read
from tests.support.clusters import is_whole, started
from tests.support.scenario import Cluster

SAFETY = 90.0
# A cleaner that is quick, so that a load can have holes; a small segment can then be rolled within a second.
_EXTRA = {
    "log.cleaner.backoff.ms": "200",
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "500",
    # A quota is compared with the last two seconds, not with the last ten: a load of some megabytes meets it.
    "quota.window.num": "3",
}


@dataclass
class Side:
    """One cluster with its proxies. ``direct`` is how its administrator sees it, ``clients`` what the product's clients
    need beside the address.
    """

    cluster: KafkaCluster
    proxies: Sequence[Proxy]
    clients: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.direct = Cluster(self.cluster.bootstrap)

    @property
    def bootstrap(self) -> str:
        """What the product is given: the proxies' addresses, or the brokers' own without proxies."""
        if not self.proxies:
            return self.cluster.bootstrap
        return ",".join(f"{LOOPBACK}:{proxy.port}" for proxy in self.proxies)

    @property
    def brokers(self) -> Sequence[Broker]:
        return self.cluster.brokers

    @property
    def admin(self) -> AdminClient:
        return self.direct.admin

    def connection(self, clients: Mapping[str, Any]) -> dict[str, Any]:
        """The settings that the product's clients get."""
        return {"bootstrap.servers": self.bootstrap, **self.clients, **clients}

    @property
    def name(self) -> str:
        return self.cluster.name

    @property
    def nodes(self) -> Sequence[Broker]:
        return self.brokers

    def start(self) -> None:
        """Start all brokers that do not run."""
        self.cluster.start()

    def logs(self, topic: str) -> list[list[Record]]:
        """The records of each partition, as ``read_committed`` readers see them."""
        numbers = range(self.direct.partitions(topic))
        return [[record for _, record in read(self.direct.bootstrap, topic, number)] for number in numbers]

    def engines(self, replication: str) -> Counter[str]:
        """How many chunks each engine has copied, as the receipts say."""
        found = Counter[str]()
        for record in (record for log in self.logs(RECEIPTS) for record in log):
            if record.value and json.loads(record.key or b"[0, 0]")[1] == replication:
                found[json.loads(record.value)["engine"]] += 1
        return found

    def size(self, topic: str) -> int:
        """Offsets in all partitions; 0 if there is no such topic."""
        return self.direct.size(topic)

    def delete(self, topic: str) -> None:
        """A topic that nobody needs any more, if it exists."""
        with suppress(KafkaException):
            self.admin.delete_topics([topic])[topic].result(30)

    def leader(self, topic: str, partition: int) -> Broker:
        """The broker that leads a partition now."""
        found = self.admin.list_topics(topic, timeout=30).topics[topic].partitions[partition].leader
        return self.cluster.broker(found - 1)

    def coordinator(self, transactional_id: str) -> Broker:
        """The coordinator of a transactional id: the leader of its partition of ``__transaction_state``."""
        partitions = len(
            self.admin.list_topics("__transaction_state", timeout=30).topics["__transaction_state"].partitions
        )
        return self.leader("__transaction_state", _java_hash(transactional_id) % partitions)

    def heal(self) -> None:
        """Every broker runs, every proxy behaves, every partition has all its replicas in sync again."""
        for proxy in self.proxies:
            proxy.behave()
        for broker in self.brokers:
            if broker.process is not None:
                broker.process.send(signal.SIGCONT)
            broker.start()
        deadline = time.monotonic() + SAFETY
        while not is_whole(self.admin, len(self.brokers)):
            assert time.monotonic() < deadline, f"cluster {self.cluster.name} is not whole again after {SAFETY:.0f} s"
            time.sleep(0.1)

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Move the log start, as retention does."""
        at = TopicPartition(topic, partition, offset)
        next(iter(self.admin.delete_records([at]).values())).result(30)


def _java_hash(text: str) -> int:
    """``Utils.abs(text.hashCode())``, by which Kafka finds a transactional id's partition."""
    value = 0
    for char in text:
        value = (31 * value + ord(char)) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >> 31 else value
    return 0 if signed == -(1 << 31) else abs(signed)


Elsewhere = SearchSide | RowSide  # a side that is no Kafka cluster


@dataclass
class Bench:
    """Both sides, in one folder. ``elsewhere`` is the target instead of ``target``, where it is given."""

    source: Side
    target: Side
    folder: Path
    until_the_end: ExitStack
    _others: dict[str, Side] = field(default_factory=dict)
    _elsewhere: dict[str, Elsewhere] = field(default_factory=dict)
    elsewhere: Elsewhere | None = None

    @property
    def copied_to(self) -> Side | Elsewhere:
        """The side that the product copies to."""
        return self.elsewhere or self.target

    def other(self, name: str, start: Callable[[Path, ExitStack], Side]) -> Side:
        """A side of another shape. It is started when it is first asked for."""
        if name not in self._others:
            self._others[name] = start(self.folder, self.until_the_end)
        return self._others[name]

    def with_wide_source(self) -> Bench:
        """The source has three brokers, without proxies."""
        return replace(self, source=self.other("wide", _wide))

    def with_fragile_target(self) -> Bench:
        """The target has three brokers, without proxies, and a ledger of its own that has one replica."""
        return replace(self, target=self.other("fragile", _fragile))

    def with_wide_target(self) -> Bench:
        """The target has five brokers, without proxies, of which two may be away: the controllers keep their majority,
        and each broker has the ledger and the coordinators' state.
        """
        return replace(self, target=self.other("wide-target", _wide_target))

    def with_opensearch(self) -> Bench:
        """The target is a node of OpenSearch, with a proxy in front of it."""
        return self._copying_to("opensearch", start_opensearch)

    def with_hbase(self) -> Bench:
        """The target is a server of HBase, with a proxy in front of its gateway."""
        return self._copying_to("hbase", start_hbase)

    def _copying_to(self, name: str, start: Callable[[Path, ExitStack], Elsewhere]) -> Bench:
        if name not in self._elsewhere:
            self._elsewhere[name] = start(self.folder, self.until_the_end)
        return replace(self, elsewhere=self._elsewhere[name])

    def heal(self) -> None:
        self.source.heal()
        self.copied_to.heal()

    @property
    def sides(self) -> tuple[Side, Side | Elsewhere]:
        return self.source, self.copied_to


def _wide(folder: Path, until_the_end: ExitStack) -> Side:
    cluster = KafkaCluster("wide", folder, 3, extra={"auto.leader.rebalance.enable": "false"})
    until_the_end.enter_context(started(cluster))
    return Side(cluster, [])


def _fragile(folder: Path, until_the_end: ExitStack) -> Side:
    cluster = KafkaCluster("fragile", folder, 3, extra=_EXTRA)
    until_the_end.enter_context(started(cluster))
    return Side(cluster, [])


def _wide_target(folder: Path, until_the_end: ExitStack) -> Side:
    everywhere = dict.fromkeys(("default.replication.factor", "transaction.state.log.replication.factor"), "5")
    cluster = KafkaCluster("wide-target", folder, 5, extra={**_EXTRA, **everywhere})
    until_the_end.enter_context(started(cluster))
    return Side(cluster, [])


@contextmanager
def open_bench(folder: Path) -> Iterator[Bench]:
    """Start the clusters, and end them without ceremony: nobody needs the data."""
    ports = free_ports(8)
    pairs = list(zip(ports[::2], ports[1::2], strict=True))  # where a broker listens, and what it advertises
    source = KafkaCluster("source", folder, 1, extra=_EXTRA, proxied=pairs[:1])
    target = KafkaCluster("target", folder, 3, extra=_EXTRA, proxied=pairs[1:])
    with started(source, target), ExitStack() as stack:
        proxies = [stack.enter_context(closing(Proxy(advertised, port))) for port, advertised in pairs]
        yield Bench(Side(source, proxies[:1]), Side(target, proxies[1:]), folder, stack)
