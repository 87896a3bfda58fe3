"""One replication between two real clusters, with everything a test does to it; copying runs in this process, without Spark."""

from __future__ import annotations

import functools
import itertools
import re
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported without saying so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from kafka_replication.config import Replication
from kafka_replication.copying.engine import CopyTask
from kafka_replication.kafka import offsets
from kafka_replication.ledger.entries import POSITIONS, RECEIPTS, Position
from kafka_replication.model import offsets as product
from kafka_replication.model.offsets import PartitionKey
from kafka_replication.reporting.run import RangeReport, RunReport
from kafka_replication.runs import steps
from kafka_replication.runs.run import LeasedRun, Request, open_run
from kafka_replication.spark.jobs import Job, RangeTask
from kafka_replication.spark.launcher import Launcher
from kafka_replication.store import open_empty, open_store
from kafka_replication.store.watermark_store import WatermarkStore
from tests.support import whole_runs
from tests.support.addresses import Addresses
from tests.support.checker import Comparison, check, high_watermark
from tests.support.jobs import InProcess, no_launch, reading
from tests.support.leases import NoLease
from tests.support.waiting import SAFETY, wait_until

LIMIT = re.compile(r"message\.timestamp\.(after|before)")
Header = tuple[str, bytes | None]
# A busy machine may stand still for seconds; who kills a run does not want to wait for its lease.
ALL = Request()
T = TypeVar("T")


@dataclass(frozen=True)
class Rec:
    """A record to produce; the timestamp is explicit, so that nothing depends on the clock."""

    key: bytes | None = None
    value: bytes | None = b""
    headers: tuple[Header, ...] = ()
    timestamp: int = 1_700_000_000_000


def numbered(count: int, first: int = 0, size: int = 100) -> list[Rec]:
    """Distinct records of ``size`` bytes."""
    return [
        Rec(b"k%d" % n, (b"%d-" % n).ljust(size, b"x"), (), 1_700_000_000_000 + n) for n in range(first, first + count)
    ]


@functools.lru_cache(maxsize=8)  # a client costs connections and threads
def _admin(bootstrap: str) -> AdminClient:
    quiet = {"log_level": 0, "allow.auto.create.topics": False, "reconnect.backoff.max.ms": 500}
    admin = AdminClient({"bootstrap.servers": bootstrap, **quiet})
    for _ in range(2):  # the first answer may come over the bootstrap connection, which librdkafka then closes
        admin.list_topics(timeout=30)
    return admin


@dataclass
class Cluster:
    """One side, as its administrator and its other users see it."""

    bootstrap: str

    @property
    def admin(self) -> AdminClient:
        return _admin(self.bootstrap)

    def create(
        self,
        topic: str,
        partitions: int = 1,
        config: Mapping[str, str] = {},
        replicas: int = 1,
        assignment: list[list[int]] | None = None,
    ) -> None:
        """``assignment``: the brokers of each partition, instead of so many partitions and replicas."""
        # Old timestamps must not fall to retention while a test looks at them.
        settings = {"retention.ms": "-1", **config}
        if any(map(LIMIT.match, settings)) and self.is_before_3_6:  # one limit for both directions (KIP-937)
            settings = {LIMIT.sub("message.timestamp.difference", name): value for name, value in settings.items()}
        if assignment is None:
            new = NewTopic(topic, partitions, replicas, config=settings)
        else:
            new = NewTopic(topic, len(assignment), replica_assignment=assignment, config=settings)
        deadline, answered = time.monotonic() + SAFETY, True
        while True:
            try:
                self.admin.create_topics([new])[topic].result(30)
                break
            except KafkaException as e:
                code = e.args[0].code()
                if code == KafkaError.TOPIC_ALREADY_EXISTS and not answered:
                    break
                # One of this name is still being deleted; or the client has just closed the connection that it asked.
                if code not in (KafkaError.TOPIC_ALREADY_EXISTS, KafkaError._DESTROY_BROKER):
                    raise
                if time.monotonic() > deadline:
                    raise
                answered = answered and code != KafkaError._DESTROY_BROKER
                time.sleep(0.05)
        wait_until(lambda: self.partitions(topic) == new.num_partitions)

    @functools.cached_property
    def is_before_3_6(self) -> bool:
        broker = ConfigResource(ResourceType.BROKER, str(min(self.admin.list_topics(timeout=30).brokers)))
        return "log.message.timestamp.after.max.ms" not in self.admin.describe_configs([broker])[broker].result(30)

    def delete(self, topic: str) -> None:
        try:
            self.admin.delete_topics([topic])[topic].result(30)
        except KafkaException as e:  # the client repeats a request whose answer came late: the first one deleted it
            if e.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
        wait_until(lambda: self.partitions(topic) == 0)

    def partitions(self, topic: str) -> int:
        found = self.admin.list_topics(topic, timeout=30).topics.get(topic)
        return 0 if found is None else sum(each.leader >= 0 for each in found.partitions.values())

    def size(self, topic: str) -> int:
        """Offsets in all partitions; 0 for a topic that is not there yet, or not known to every broker."""
        try:
            return sum(self._high_watermarks(topic, self.partitions(topic)).values())
        except KafkaException as error:
            if error.args[0].code() in (
                KafkaError._UNKNOWN_PARTITION,
                KafkaError._UNKNOWN_TOPIC,
                KafkaError.UNKNOWN_TOPIC_OR_PART,
            ):
                return 0
            raise

    def _high_watermarks(self, topic: str, partitions: int) -> dict[int, int]:
        asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}  # type: ignore[no-untyped-call]
        if not asked:
            return {}
        # A broker that was just told to lead may not know yet.
        return _answer(
            lambda: {at.partition: each.result(30).offset for at, each in self.admin.list_offsets(asked).items()},
            KafkaError.NOT_LEADER_FOR_PARTITION,
        )

    def grow(self, topic: str, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)
        wait_until(lambda: self.partitions(topic) == partitions)

    def set(self, topic: str, **config: str) -> None:
        self._set(ResourceType.TOPIC, topic, config)

    def set_brokers(self, **config: str) -> None:
        """They obey some time after the answer."""
        for broker in self.admin.list_topics(timeout=30).brokers:
            self._set(ResourceType.BROKER, str(broker), config)

    def _set(self, kind: ResourceType, whose: str, config: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in config.items()
        ]
        resource = ConfigResource(kind, whose, incremental_configs=entries)
        next(iter(self.admin.incremental_alter_configs([resource]).values())).result(30)

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        at = TopicPartition(topic, partition, offset)
        # A broker obeys a changed cleanup.policy some time after the change was answered.
        _answer(
            lambda: next(iter(self.admin.delete_records([at]).values())).result(30),
            KafkaError.POLICY_VIOLATION,
            KafkaError.NOT_LEADER_FOR_PARTITION,
        )

    def produce(self, topic: str, records: Iterable[Rec], partition: int = 0, **config: Any) -> None:
        """Send and wait for the acknowledgement of every record."""
        # Idempotence would cost half a second: see `TransactionalProducer._connect`.
        producer = self.producer(**{"enable_idempotence": False, "max_in_flight": 1, **config})
        # Records that wait until the producer knows the topic are handed on one by one while it flushes: the first of them
        # may become a batch of its own, whatever `linger.ms` says.
        producer.list_topics(topic, timeout=60)
        send(producer, topic, records, partition)

    def producer(self, **config: Any) -> Producer:
        base = {
            "bootstrap.servers": self.bootstrap,
            "message.max.bytes": 64 << 20,
            "linger.ms": 5,
            "enable.idempotence": True,
        }
        return Producer({**base, "log_level": 0, **{name.replace("_", "."): value for name, value in config.items()}})

    def transactional(self, timeout: int = 120, **config: Any) -> Producer:
        """A producer of somebody else, with an id of its own."""
        own = {"transactional_id": f"somebody-{uuid.uuid4()}", "transaction_timeout_ms": timeout * 1000}
        producer = self.producer(**own, **config)
        producer.init_transactions(30)
        return producer

    def transaction(self, topic: str, records: Iterable[Rec], partition: int = 0, *, abort: bool = False) -> None:
        """Written by somebody else, with its marker: brokers answer before that is there."""
        producer = self.transactional()
        producer.begin_transaction()
        send(producer, topic, records, partition)
        marker = high_watermark(self.bootstrap, topic, partition)
        (producer.abort_transaction if abort else producer.commit_transaction)(30)
        wait_until(lambda: high_watermark(self.bootstrap, topic, partition) > marker)

    def is_settled(self, partitions: Sequence[product.TopicPartition]) -> bool:
        """Whether no transaction is open there."""
        return offsets.last_stable(self.admin, partitions) == offsets.high_watermarks(self.admin, partitions)


def _answer(ask: Callable[[], T], *passing: int) -> T:
    """The answer to a request that is sent again while it fails for a reason that passes: codes of `KafkaError`."""
    deadline = time.monotonic() + SAFETY
    while True:
        try:
            return ask()
        except KafkaException as e:
            if e.args[0].code() not in passing or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def send(producer: Producer, topic: str, records: Iterable[Rec], partition: int = 0) -> None:
    failed: list[Any] = []
    for record in records:
        while True:
            try:
                producer.produce(
                    topic,
                    record.value,
                    record.key,
                    partition,
                    timestamp=record.timestamp,
                    headers=list(record.headers),
                    on_delivery=lambda error, _: failed.append(error) if error else None,
                )
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0
    assert not failed, failed


_numbers = itertools.count(1)
STORE = "store.db"


@functools.cache
def _new_store() -> bytes:
    """The file of a store without rows. To create its tables anew takes ten times as long as to open it."""
    with tempfile.TemporaryDirectory() as folder:
        open_empty(Path(folder)).close()
        return (Path(folder) / STORE).read_bytes()


class Scenario:
    """A replication ``name`` of one topic; the clusters are shared, the names are this test's own."""

    def __init__(self, source: Cluster, target: Cluster, folder: Path) -> None:
        self.source, self.target, self.folder = source, target, folder
        self.name = f"it-{next(_numbers)}-{uuid.uuid4().hex[:6]}"
        self.topic = f"{self.name}.events"
        self.settings: dict[str, Any] = {}
        self.client: dict[str, Any] = {}  # further settings of the target's connection
        if not (file := folder / STORE).exists():
            file.write_bytes(_new_store())
        self.store: WatermarkStore = open_store(self.store_url)

    @property
    def store_url(self) -> str:
        return f"sqlite:///{self.folder}/{STORE}"

    def replication(self, **more: Any) -> Replication:
        return Replication.model_validate(self.document(**more))

    def document(self, **more: Any) -> dict[str, Any]:
        value: dict[str, Any] = {
            "name": self.name,
            "source": {"connection": "source"},
            "target": {"connection": "target"},
            "topics": {"include": [self.topic]},
        }
        value |= {**self.settings, **more}
        value["copy"] = {
            "chunk_records": 500,
            "transaction_timeout": 30,
            "stall_timeout": 60,
        } | value.get("copy", {})
        return value

    @property
    def connections(self) -> Addresses:
        return Addresses(self.source.bootstrap, self.target.bootstrap, of_target=self.client)

    def run(self, launcher: Launcher | None = None, request: Request = ALL, **more: Any) -> RunReport:
        launch = launcher or InProcess()
        return whole_runs.run(self.replication(**more), self.connections, self.store, launch, request)

    def idle_run(self, **more: Any) -> RunReport:
        """A run that fails when it asks for Spark."""
        report = whole_runs.run(self.replication(**more), self.connections, self.store, no_launch, Request())
        assert report.outcome == "nothing_to_do", report.table()
        return report

    def bare_run(self, run_id: str = "bare") -> LeasedRun:
        """For calling single steps."""
        return open_run(self.replication(), self.connections, self.store, run_id).holding(NoLease(run_id))

    def key(self, partition: int = 0, topic: str | None = None, target: str | None = None) -> PartitionKey:
        name = topic or self.topic
        return PartitionKey(self.name, product.TopicPartition(name, partition), target or name)

    def watermark(self, partition: int = 0) -> int | None:
        found = self.store.watermarks(self.name).get(self.key(partition))
        return found.offset if found else None

    def position(self, partition: int = 0) -> Position:
        return self.bare_run().view().positions[self.key(partition)]

    def is_settled(self, *partitions: int) -> bool:
        """Whether no transaction is open on the target's partitions, and where their entries lie in the ledger."""
        at = [product.TopicPartition(self.topic, partition) for partition in partitions or (0,)]
        ledger = {self.key(partition).ledger_partition for partition in partitions or (0,)}
        at += [product.TopicPartition(name, number) for name in (POSITIONS, RECEIPTS) for number in sorted(ledger)]
        return self.target.is_settled(at)

    def check(
        self, partition: int = 0, target_topic: str | None = None, from_: int = 0, until: int = 2**63
    ) -> Comparison:
        return check(
            self.source.bootstrap,
            self.target.bootstrap,
            self.topic,
            target_topic or self.topic,
            partition,
            from_,
            until,
        )

    def assert_copied(self, *partitions: int, from_: int = 0) -> None:
        for partition in partitions or (0,):
            found = self.check(partition, from_=from_)
            assert found.clean, f"{self.topic}-{partition}: {found}"

    def copy_job(self, *partitions: int, run_id: str = "bare") -> Job:
        """Open the partitions and plan, as a run does before it starts Spark."""
        run = self.bare_run(run_id)
        plan = steps.prepare(run, Request())
        tasks = [
            RangeTask(
                copy=CopyTask(key=p.key, range=p.copy, ids=p.ids, generation=p.generation, run_id=run_id),
                read_back=reading(p.key, p.generation),
            )
            for p in plan.to_copy
            if p.copy
        ]
        return Job(
            replication=run.replication,
            source=run.clusters.source,
            target=run.clusters.target_connection,
            tasks=tasks,
        )


def only(report: RunReport, partition: int = 0) -> RangeReport:
    """The one line about a partition."""
    lines = [each for each in report.ranges if each.key.source.partition == partition]
    assert len(lines) == 1, report.table()
    return lines[0]
