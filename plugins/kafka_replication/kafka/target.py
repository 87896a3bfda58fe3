"""One target cluster of a replication, as one process reaches it.

The topics of a target cluster, and the requests that its brokers would refuse.

The quarantine topic of a target cluster, for one partition.

The logs of a target cluster, whoever wrote them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from functools import cached_property
from typing import Any, ClassVar

from confluent_kafka.admin import AdminClient

from kafka_replication.config import Replication
from kafka_replication.copying.sink import Record, SetAside, SinkSession
from kafka_replication.kafka import (
    brokers,
    clients,
    dry_run_requests,
    offsets,
    quarantine,
    snapshotter,
    topic_changes,
    topics,
)
from kafka_replication.kafka.cursor import Cursor, first_record
from kafka_replication.kafka.ledger import KafkaLedger, readings
from kafka_replication.kafka.ledger_reader import LONGEST_TRANSACTION
from kafka_replication.kafka.producers import AcknowledgedProducer
from kafka_replication.kafka.quarantine import QuarantineEnds, quarantined_records
from kafka_replication.kafka.reading import headers_of
from kafka_replication.kafka.sink import KafkaSink, kind_of
from kafka_replication.kafka.transactions import TransactionalProducer, fence_each, longest_wait
from kafka_replication.ledger.entries import FailedRecord, Ids
from kafka_replication.ledger.port import Ledger, TransactionPort
from kafka_replication.model.choices import EXACTLY_ONCE, KAFKA, TRANSACTIONAL, Delivery, Promise
from kafka_replication.model.errors import GapFound, NotReady, Refused, ReplicationError
from kafka_replication.model.offsets import (
    Coverage,
    OffsetRange,
    PartitionKey,
    TopicPartition,
    check_id,
    consumer_group,
    readable,
)
from kafka_replication.model.rights import DenyRule, Login
from kafka_replication.planning.snapshot import PartitionOffsets, Snapshot, Topic
from kafka_replication.runtime.deadline import NEVER, Deadline, StallClock
from kafka_replication.targets.port import (
    Catalogue,
    Failures,
    Quarantine,
    Standing,
    TargetSettings,
    ToCreate,
)

log = logging.getLogger(__name__)


class KafkaTarget:
    """A `Target`. What only a driver needs is imported when it is first asked for."""

    connection_type: ClassVar[str] = KAFKA
    promise: ClassVar[Promise] = TRANSACTIONAL

    def __init__(self, settings: TargetSettings, deadline: Deadline = NEVER) -> None:
        self._settings, self._replication, self._deadline = settings, settings.replication, deadline
        self._config, self._copying = settings.connection, settings.replication.copying

    @classmethod
    def checked(cls, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        return clients.check_connection(name, settings, "target")

    @property
    def login(self) -> Login:
        return clients.login(self._config)

    @cached_property
    def _own_admin(self) -> AdminClient:
        return clients.admin(self._config, self._replication.timeouts.request * clients.CONNECTING)

    def _admin(self) -> AdminClient:
        return clients.shared_admin(self._config) if self._settings.shared else self._own_admin

    def connect(self) -> None:
        self._admin()

    def check_reachable(self, at: TopicPartition) -> None:
        from kafka_replication.kafka import reachability

        reachability.check("target", self._config, at, self._replication.timeouts.request, self._deadline)

    @cached_property
    def catalogue(self) -> Catalogue:

        return KafkaCatalogue(self._settings, self._admin, self._deadline)

    @cached_property
    def standing(self) -> Standing:

        return KafkaStanding(self._settings, self._admin, self._deadline)

    @cached_property
    def ledger(self) -> KafkaLedger:
        seconds = self._settings.ledger_seconds
        patience = LONGEST_TRANSACTION if seconds is None else seconds
        admin, name = self._admin(), self._replication.name
        shared = readings(self._config, admin, name) if self._settings.shared else None
        return KafkaLedger(self._config, admin, name, self._deadline, patience=patience, shared=shared)

    def follower(self) -> Callable[[], AbstractContextManager[Ledger]]:
        follow, admin = self.ledger.follower(), self._admin()
        return lambda: nullcontext(follow(admin))

    @cached_property
    def sink(self) -> KafkaSink:
        return self._sink(self._replication.delivery)

    def _sink(self, delivery: Delivery) -> KafkaSink:
        placing = self._replication.placing
        return KafkaSink(self._config, self._copying, self._deadline, self.ledger, placing, delivery)

    def session(self, key: PartitionKey) -> SinkSession:
        delivery = self._replication.delivery
        return kind_of(delivery)(key, self._config, self._copying, self._deadline, delivery=delivery)

    def deciding(self, key: PartitionKey, ids: Ids) -> AbstractContextManager[SinkSession]:
        # Who decides has all records of a chunk in memory already, so that a bound of the queue would save nothing.
        aside = SetAside(searching=True, queue=clients.PRODUCER["message.max.bytes"])
        return self._sink(EXACTLY_ONCE).session(key, ids, aside)

    def writer(self, writer_id: str, what: str) -> TransactionPort:
        if self._replication.delivery == EXACTLY_ONCE:
            return self._transactional(writer_id, what)
        return AcknowledgedProducer("at_least_once", what, self._config, self._copying, self._deadline)

    def _transactional(self, writer_id: str, what: str) -> TransactionalProducer:
        return TransactionalProducer(writer_id, what, self._config, self._copying, self._deadline)

    def end_sessions(self, ids: Mapping[str, str], check: Callable[[], None]) -> None:
        fence_each(ids, self._transactional, check)

    def quarantine(self) -> AbstractContextManager[Quarantine]:

        name, stall = self._replication.name, self._copying.stall_timeout
        return closing(KafkaQuarantine(self._config, self._admin(), stall, name))


class KafkaCatalogue(Catalogue):
    """Of one cluster, for one replication."""

    def __init__(self, settings: TargetSettings, admin: Callable[[], AdminClient], deadline: Deadline) -> None:
        self._settings, self._admin, self._deadline = settings, admin, deadline

    def cluster_id(self) -> str:
        return topics.cluster_id(self._admin())

    def look(self, replication: Replication, wanted: Collection[str], others: Collection[str] = ()) -> Snapshot:
        return snapshotter.take_target(replication, self._admin(), wanted, others)

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        return topics.describe_all(self._admin(), names)

    def partitions(self, names: Iterable[str]) -> dict[str, frozenset[int]]:
        return {name: state.partitions for name, state in topics.states(self._admin(), names).items()}

    def create(self, topic: ToCreate) -> None:
        topics.create(self._admin(), topic)

    def add_partitions(self, name: str, partitions: int) -> None:
        topics.add_partitions(self._admin(), name, partitions)

    def change_settings(
        self, wanted: Mapping[str, Mapping[str, str | None]]
    ) -> dict[tuple[str, str], ReplicationError]:
        return topic_changes.change(self._admin(), wanted)

    def may_read(self, seconds: float) -> bool:
        group = consumer_group(self._settings.replication.name)
        return dry_run_requests.may_describe_group(self._settings.connection, group, seconds)

    def deny_rules(self, seconds: float) -> frozenset[DenyRule] | None:
        return dry_run_requests.deny_rules(self._admin(), "target", seconds)

    def check_writing(self) -> None:
        """Ask for a producer id with the replication's own time-out, under an id that no copier uses: refused if the
        brokers allow no transaction to last so long.
        """
        replication, connection = self._settings.replication, self._settings.connection
        own = check_id(replication.name), "asking", connection, replication.copying, self._deadline
        with closing(TransactionalProducer(*own)) as transaction:
            transaction.fence()

    def refusals(self, topics: Iterable[ToCreate], seconds: float) -> dict[str, ReplicationError]:
        return dry_run_requests.refusals(self._admin(), topics, seconds)


class KafkaQuarantine:
    """A `Quarantine`. It reads each partition of the topic with one consumer."""

    def __init__(self, config: clients.ClientConfig, admin: AdminClient, stall: float, replication: str) -> None:
        self._config, self._admin, self._stall, self._group = config, admin, stall, consumer_group(replication)
        self._ends = QuarantineEnds(admin)
        self._cursors, self._open = dict[TopicPartition, Cursor](), ExitStack()

    def records(self, topic: str, key: PartitionKey, generation: int) -> Iterator[tuple[FailedRecord, str]]:
        return quarantined_records(self._config, self._admin, topic, key, generation, self._stall)

    def original(self, key: PartitionKey, failed: FailedRecord) -> Record | None:
        if failed.place is None or not self._ends.has(failed.place):
            return None
        at, offset = TopicPartition(failed.place.topic, failed.place.partition), failed.place.offset
        try:
            message = next(self._cursor(at).read(OffsetRange(offset, offset + 1)), None)
        except (GapFound, Refused) as error:  # it is gone, or cannot be read
            log.info("%s offset %d: %s", at, offset, error)
            return None
        if message is None or not quarantine.is_copy_of(message, key, failed):
            return None
        return quarantine.original_of(message.key(), message.value(), headers_of(message))

    def _cursor(self, at: TopicPartition) -> Cursor:
        if at not in self._cursors:
            cursor = Cursor(self._config, self._group, at, self._stall)
            self._cursors[at] = self._open.enter_context(closing(cursor))
        return self._cursors[at]

    def close(self) -> None:
        self._open.close()


AT_REST = 3.0  # seconds; a log that has not grown for so long gets no more of the records that were sent
LOOK = 0.1


class KafkaStanding(Standing):
    """Of one cluster, for one replication."""

    commit_takes = 1  # a marker in each partition of the transaction

    def __init__(self, settings: TargetSettings, admin: Callable[[], AdminClient], deadline: Deadline) -> None:
        self._config, self._copying = settings.connection, settings.replication.copying
        self._admin, self._deadline = admin, deadline
        self._group = consumer_group(settings.replication.name)
        self._patience = offsets.Patience.within(settings.replication.timeouts.request)

    def logs(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetRange]:
        return offsets.readable_logs(self._admin(), wanted, self._patience)

    def starts(self, wanted: Iterable[TopicPartition]) -> tuple[dict[TopicPartition, int], Failures]:
        return offsets.log_starts_each(self._admin(), wanted)

    def ends(self, wanted: Iterable[TopicPartition]) -> tuple[dict[TopicPartition, int], Failures]:
        return offsets.last_stable_each(self._admin(), wanted)

    def stable_ends(
        self, wanted: Iterable[TopicPartition], seconds: float | None = None
    ) -> tuple[dict[TopicPartition, int], Failures]:
        most = longest_wait(self._copying, self._deadline) if seconds is None else seconds
        return offsets.stable_ends_each(self._admin(), wanted, most)

    def hiding(self, wanted: Iterable[TopicPartition]) -> set[TopicPartition]:
        there = offsets.all_three(self._admin(), wanted, self._patience)
        return {at for at, log in there.items() if isinstance(log, PartitionOffsets) and log.is_hiding}

    def left_open(self, at: TopicPartition) -> Mapping[str, int]:
        return brokers.owners(self._admin(), at)

    def hidden_by(self, at: TopicPartition, session_id: str) -> Coverage:
        return brokers.offsets_of(self._admin(), at, session_id)

    def certain_ends(self, wanted: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return brokers.certain_ends(self._admin(), wanted, self._patience.request)

    def at_rest(self, at: TopicPartition, expected: int) -> OffsetRange:
        rest, end, admin = StallClock(AT_REST), 0, self._admin()
        while (end := offsets.last_stable(admin, [at])[at]) < expected and not rest.is_over(-end):
            time.sleep(LOOK)
        return readable(offsets.log_starts(admin, [at])[at], end)

    def check_all_shown(self, at: TopicPartition, until: int) -> None:
        """With fewer in-sync replicas than min.insync.replicas a leader takes records with acks=0 and acks=1, and shows
        them to nobody until the replicas are back (KIP-966). What is not shown is not lost.
        """
        admin = self._admin()
        needed = int(topics.config(admin, at.topic)["min.insync.replicas"])
        for partition in topics.descriptions(admin, [at.topic])[at.topic].partitions:
            if partition.id == at.partition and len(partition.isr) < needed:
                raise NotReady(
                    f"{at} on the target has {len(partition.isr)} in-sync replicas of {needed}"
                    " (min.insync.replicas), so it may hide records that it has: what is lost cannot be counted",
                    "bring the missing replicas back; the next run goes on",
                )
        if (end := offsets.last_stable(admin, [at])[at]) > until:
            raise NotReady(f"{at} on the target has grown from {until} to {end} meanwhile", "run again")

    def first_record(self, at: TopicPartition, wanted: OffsetRange) -> int | None:
        return first_record(self._config, self._group, at, wanted)

    def reader(self, at: TopicPartition) -> closing[Cursor]:
        return closing(Cursor(self._config, self._group, at, self._copying.stall_timeout))
