"""One target cluster of a replication, as one process reaches it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from functools import cached_property
from typing import Any, ClassVar

from confluent_kafka.admin import AdminClient

from kafka_replication.kafka.client import clients
from kafka_replication.kafka.ledger import KafkaLedger
from kafka_replication.kafka.ledger.reader import LONGEST_TRANSACTION
from kafka_replication.kafka.ledger.shared import readings
from kafka_replication.kafka.write.producers.fencing import fence_each
from kafka_replication.kafka.write.producers.plain_producer import AcknowledgedProducer
from kafka_replication.kafka.write.producers.transactions import TransactionalProducer
from kafka_replication.kafka.write.sink import KafkaSink, session_of
from kafka_replication.ledger.entries import Ids
from kafka_replication.ledger.port import Ledger
from kafka_replication.ledger.transaction import TransactionPort
from kafka_replication.model.delivery import EXACTLY_ONCE, Delivery
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.model.rights import Login
from kafka_replication.model.targets import KAFKA, TRANSACTIONAL, Promise
from kafka_replication.runtime.deadline import NEVER, Deadline
from kafka_replication.sinks.failure_budget import SetAside
from kafka_replication.targets.port import (
    Catalogue,
    DecidingSession,
    EntrySession,
    Quarantine,
    Standing,
    TargetSettings,
)


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
        from kafka_replication.kafka.preflight import reachability

        reachability.check("target", self._config, at, self._replication.timeouts.request, self._deadline)

    @cached_property
    def catalogue(self) -> Catalogue:
        from kafka_replication.kafka.target.catalogue import KafkaCatalogue

        return KafkaCatalogue(self._settings, self._admin, self._deadline)

    @cached_property
    def standing(self) -> Standing:
        from kafka_replication.kafka.target.standing import KafkaStanding

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

    def session(self, key: PartitionKey) -> EntrySession:
        return session_of(key, self._config, self._copying, self._deadline, delivery=self._replication.delivery)

    def deciding(self, key: PartitionKey, ids: Ids) -> AbstractContextManager[DecidingSession]:
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
        from kafka_replication.kafka.target.quarantine import KafkaQuarantine

        name, stall = self._replication.name, self._copying.stall_timeout
        return closing(KafkaQuarantine(self._config, self._admin(), stall, name))
