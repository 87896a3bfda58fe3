"""HBase as the target of a replication: ``target: {type: hbase, connection: ...}``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any, ClassVar

from kafka_replication.hbase import client as clients
from kafka_replication.hbase.by_key import KeyVerifier
from kafka_replication.hbase.catalogue import HBaseCatalogue
from kafka_replication.hbase.client import SEE, Client
from kafka_replication.hbase.key_places import KeyPlaces
from kafka_replication.hbase.places import TablePlaces
from kafka_replication.hbase.protocol import THRIFT2
from kafka_replication.hbase.puts import Puts
from kafka_replication.hbase.quarantine import HBaseQuarantine
from kafka_replication.hbase.shelf import TableShelf
from kafka_replication.hbase.standing import HBaseStanding, HBaseVerifier
from kafka_replication.hbase.tables import Tables
from kafka_replication.kafka.write.partitioner import partition_of_key
from kafka_replication.ledger.port import Ledger
from kafka_replication.model.errors import Refused
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.model.rights import Login
from kafka_replication.model.targets import HBASE, IDEMPOTENT, LATEST, Promise
from kafka_replication.runtime.deadline import NEVER, Deadline
from kafka_replication.targets.idempotent_target import IdempotentSink, IdempotentTarget
from kafka_replication.targets.journal import JournalLedger
from kafka_replication.targets.port import TargetSettings
from kafka_replication.targets.resend import Resend


class HBaseTarget(IdempotentTarget):
    """A `Target`."""

    connection_type: ClassVar[str] = HBASE
    promise: ClassVar[Promise] = IDEMPOTENT

    def __init__(self, settings: TargetSettings, deadline: Deadline = NEVER) -> None:
        self._settings, self._deadline = settings, deadline

    @classmethod
    def checked(cls, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        return clients.checked(name, settings)

    @cached_property
    def _client(self) -> Client:
        make = clients.shared if self._settings.shared else Client
        return make(self._settings.connection, self._settings.replication.timeouts.request)

    @property
    def login(self) -> Login:
        return Login(self._client.name, "User:anonymous")

    def connect(self) -> None:
        if self._client.call("getThriftServerType") != THRIFT2:
            raise Refused(
                f"{self._client.name} is HBase's Thrift gateway of the first kind",
                f"start `hbase thrift2`, and name its port; {SEE}",
            )

    def check_reachable(self, at: TopicPartition) -> None:
        self.connect()

    @cached_property
    def _shelf(self) -> TableShelf:
        return TableShelf(self._client, self._settings.replication.name)

    @cached_property
    def ledger(self) -> JournalLedger:
        return JournalLedger(self._shelf)

    @cached_property
    def catalogue(self) -> HBaseCatalogue:
        return HBaseCatalogue(self._client, self.ledger, self._shelf, self._settings.replication.target.shape)

    @cached_property
    def standing(self) -> HBaseStanding:
        return HBaseStanding(self._client, self.ledger, self._settings.replication.target.shape)

    def follower(self) -> Callable[[], AbstractContextManager[Ledger]]:
        return lambda: nullcontext(JournalLedger(TableShelf(self._client, self._settings.replication.name)))

    @property
    def sink(self) -> HBaseSink:
        return HBaseSink(self._client, self._settings, self.ledger, self._deadline)

    def quarantine(self) -> AbstractContextManager[HBaseQuarantine]:
        return nullcontext(HBaseQuarantine(self._client))


class HBaseSink(IdempotentSink):
    """A `Sink`."""

    partition_of = staticmethod(partition_of_key)

    def __init__(self, client: Client, settings: TargetSettings, ledger: JournalLedger, deadline: Deadline) -> None:
        self._client, self.settings, self.ledger, self.deadline = client, settings, ledger, deadline

    @property
    def asked(self) -> Tables:
        return Tables(self._client)

    def shelf(self) -> TableShelf:
        return TableShelf(self._client, self.settings.replication.name)

    def places(self, key: PartitionKey, resend: Resend) -> TablePlaces | KeyPlaces:
        puts = Puts(client=self._client, table=key.target_topic, resend=resend, seconds=resend.stall_seconds)
        if self.settings.replication.target.shape != LATEST:
            return TablePlaces(key, self._client, puts)
        return KeyPlaces(key, self._client, puts, lambda: self.keyed(key))

    def why_not_batches(self, topic: str, settings: Mapping[str, str] | None = None) -> str | None:
        return "HBase stores rows, not Kafka's batches"

    def verifier(self, key: PartitionKey) -> AbstractContextManager[HBaseVerifier | KeyVerifier]:
        """With connections of its own."""
        client = Client(self.settings.connection, self.settings.replication.timeouts.request)
        records, newest = HBaseVerifier(client, self.ledger, key), self.settings.replication.target.shape == LATEST
        return nullcontext(KeyVerifier(client, records, key) if newest else records)
