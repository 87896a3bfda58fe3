"""HBase as the target of a replication: ``target: {type: hbase, connection: ...}``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from functools import cached_property
from typing import Any, ClassVar

from kafka_replication.hbase import client as clients
from kafka_replication.hbase.catalogue import HBaseCatalogue
from kafka_replication.hbase.client import SEE, Client
from kafka_replication.hbase.places import TablePlaces
from kafka_replication.hbase.protocol import THRIFT2
from kafka_replication.hbase.puts import Puts
from kafka_replication.hbase.quarantine import HBaseQuarantine
from kafka_replication.hbase.shelf import TableShelf
from kafka_replication.hbase.standing import HBaseStanding, HBaseVerifier
from kafka_replication.hbase.tables import Tables
from kafka_replication.kafka.read_back.partition_comparison import SourceSide
from kafka_replication.ledger.entries import Ids
from kafka_replication.ledger.port import Ledger
from kafka_replication.model.errors import Refused
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.model.rights import Login
from kafka_replication.model.targets import HBASE, IDEMPOTENT, Promise
from kafka_replication.runtime.deadline import NEVER, Deadline
from kafka_replication.sinks.failure_budget import SetAside
from kafka_replication.targets.idempotent import IdempotentSession
from kafka_replication.targets.journal import EntryWriter, Journal, JournalLedger
from kafka_replication.targets.port import TargetSettings
from kafka_replication.targets.resend import Resend
from kafka_replication.verification.read_back import Sides


class HBaseTarget:
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
        return make(self._settings.connection, self._settings.request_seconds)

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
        return TableShelf(self._client, self._settings.replication)

    @cached_property
    def ledger(self) -> JournalLedger:
        return JournalLedger(self._shelf)

    @cached_property
    def catalogue(self) -> HBaseCatalogue:
        return HBaseCatalogue(self._client, self.ledger, self._shelf)

    @cached_property
    def standing(self) -> HBaseStanding:
        return HBaseStanding(self._client, self.ledger)

    def follower(self) -> Callable[[], AbstractContextManager[Ledger]]:
        return lambda: nullcontext(JournalLedger(TableShelf(self._client, self._settings.replication)))

    @property
    def sink(self) -> HBaseSink:
        return HBaseSink(self._client, self._settings, self.ledger, self._deadline)

    def sides(self, source: Mapping[str, Any], key: PartitionKey) -> AbstractContextManager[Sides]:
        side: Any = SourceSide(source, key, self._settings.copying.stall_timeout)  # no chunk without a receipt's digest
        return closing(side)

    def session(self, key: PartitionKey) -> IdempotentSession:
        return self.sink.opened(key)

    def deciding(self, key: PartitionKey, ids: Ids) -> AbstractContextManager[IdempotentSession]:
        return self.sink.session(key, ids, SetAside(searching=True))

    def writer(self, writer_id: str, what: str) -> EntryWriter:
        return self.sink.writer(writer_id, what)

    def end_sessions(self, ids: Mapping[str, str], check: Callable[[], None]) -> None:
        for writer_id, what in ids.items():
            check()
            self.writer(writer_id, what).fence()

    def quarantine(self) -> AbstractContextManager[HBaseQuarantine]:
        return nullcontext(HBaseQuarantine(self._client))


class HBaseSink:
    """A `Sink`."""

    def __init__(self, client: Client, settings: TargetSettings, ledger: JournalLedger, deadline: Deadline) -> None:
        self._client, self._settings, self._ledger, self._deadline = client, settings, ledger, deadline

    def writer(self, writer_id: str, what: str) -> EntryWriter:
        journal = Journal(TableShelf(self._client, self._settings.replication))
        return EntryWriter(journal, writer_id, what, Tables(self._client).check_place)

    def opened(self, key: PartitionKey, ids: Ids | None = None, aside: SetAside | None = None) -> IdempotentSession:
        stall_seconds = self._settings.copying.stall_timeout
        puts = Puts(
            client=self._client,
            table=key.target_topic,
            resend=Resend(where=key.target_topic, stall_seconds=stall_seconds, deadline=self._deadline),
            seconds=stall_seconds,
        )
        return IdempotentSession(
            key=key,
            places=TablePlaces(key, self._client, puts),
            ledger=self._ledger,
            writer=self.writer(key.transactional_id, str(key)),
            ids=ids,
            aside=aside,
        )

    def session(
        self, key: PartitionKey, ids: Ids, aside: SetAside | None = None
    ) -> AbstractContextManager[IdempotentSession]:
        return closing(self.opened(key, ids, aside))

    def why_not_batches(self, topic: str, settings: Mapping[str, str] | None = None) -> str | None:
        return "HBase stores rows, not Kafka's batches"

    def verifier(self, key: PartitionKey) -> AbstractContextManager[HBaseVerifier]:
        """With connections of its own."""
        client = Client(self._settings.connection, self._settings.request_seconds)
        return nullcontext(HBaseVerifier(client, self._ledger, key))
