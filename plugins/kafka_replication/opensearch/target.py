"""OpenSearch as the target of a replication: ``target: {type: opensearch, connection: ...}``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial
from typing import Any, ClassVar

from kafka_replication.kafka.write.partitioner import partition_of_key
from kafka_replication.ledger.port import Ledger
from kafka_replication.model.errors import Refused
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.model.rights import Login
from kafka_replication.model.targets import IDEMPOTENT, LATEST, OPENSEARCH, Promise
from kafka_replication.opensearch import client as clients
from kafka_replication.opensearch.bulk import Bulk
from kafka_replication.opensearch.by_key import KeyVerifier
from kafka_replication.opensearch.catalogue import OpenSearchCatalogue
from kafka_replication.opensearch.client import Client
from kafka_replication.opensearch.documents import Documents, Origin
from kafka_replication.opensearch.indexes import Indexes
from kafka_replication.opensearch.journal import IndexShelf
from kafka_replication.opensearch.quarantine import OpenSearchQuarantine
from kafka_replication.opensearch.session import IndexPlaces
from kafka_replication.opensearch.shapes import EachRecord, Making, NewestOfKey
from kafka_replication.opensearch.standing import OpenSearchStanding, OpenSearchVerifier
from kafka_replication.runtime.deadline import NEVER, Deadline
from kafka_replication.targets.idempotent_target import IdempotentSink, IdempotentTarget
from kafka_replication.targets.journal import JournalLedger
from kafka_replication.targets.port import TargetSettings
from kafka_replication.targets.resend import Resend


class OpenSearchTarget(IdempotentTarget):
    """A `Target`."""

    connection_type: ClassVar[str] = OPENSEARCH
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
        user = self._settings.connection.get("login") or "anonymous"
        return Login(self._client.name, f"User:{user}")

    def connect(self) -> None:
        if refused := refusal_of(self._client.json("GET", "/").get("version", {})):
            raise Refused(
                f"{self._client.name} is {refused}",
                "use OpenSearch, or Elasticsearch 7.10 or a later one of version 7",
            )

    def check_reachable(self, at: TopicPartition) -> None:
        self._client.json("GET", "/")

    @cached_property
    def ledger(self) -> JournalLedger:
        return JournalLedger(IndexShelf(self._client, self._settings.replication.name))

    @cached_property
    def catalogue(self) -> OpenSearchCatalogue:
        return OpenSearchCatalogue(self._client, self.ledger, self._settings.replication.target.shape)

    @cached_property
    def standing(self) -> OpenSearchStanding:
        return OpenSearchStanding(self._client, self.ledger, self._settings.replication.target.shape)

    def follower(self) -> Callable[[], AbstractContextManager[Ledger]]:
        return lambda: nullcontext(JournalLedger(IndexShelf(self._client, self._settings.replication.name)))

    @property
    def sink(self) -> OpenSearchSink:
        return OpenSearchSink(self._client, self._settings, self.ledger, self._deadline)

    def quarantine(self) -> AbstractContextManager[OpenSearchQuarantine]:
        return nullcontext(OpenSearchQuarantine(self._client))


class OpenSearchSink(IdempotentSink):
    """A `Sink`."""

    partition_of = staticmethod(partition_of_key)

    def __init__(self, client: Client, settings: TargetSettings, ledger: JournalLedger, deadline: Deadline) -> None:
        self._client, self.settings, self.ledger, self.deadline = client, settings, ledger, deadline

    @property
    def asked(self) -> Indexes:
        return Indexes(self._client)

    def shelf(self) -> IndexShelf:
        return IndexShelf(self._client, self.settings.replication.name)

    def places(self, key: PartitionKey, resend: Resend) -> IndexPlaces:
        newest = self.settings.replication.target.shape == LATEST
        bulk = Bulk(client=self._client, index=key.target_topic, resend=resend, newest=newest)
        return IndexPlaces(key, self._client, bulk, partial(self._making, key))

    def _making(self, key: PartitionKey, origin: Origin) -> Making:
        documents = Documents(origin, self.settings.replication.target.documents.value)
        if self.settings.replication.target.shape != LATEST:
            return EachRecord(origin, documents)
        return NewestOfKey(origin, documents, self.keyed(key))

    def why_not_batches(self, topic: str, settings: Mapping[str, str] | None = None) -> str | None:
        return "OpenSearch stores documents, not Kafka's batches"

    def verifier(self, key: PartitionKey) -> AbstractContextManager[OpenSearchVerifier | KeyVerifier]:
        """With connections of its own."""
        client = Client(self.settings.connection, self.settings.replication.timeouts.request)
        records, newest = OpenSearchVerifier(client, self.ledger, key), self.settings.replication.target.shape == LATEST
        return nullcontext(KeyVerifier(client, records, key) if newest else records)


def refusal_of(version: Mapping[str, Any]) -> str | None:
    """The name of a server that is not known to work, from its ``version``. None: it is OpenSearch, or Elasticsearch
    7.10 or a later one of version 7.
    """
    name, number = str(version.get("distribution", "elasticsearch")), str(version.get("number", ""))
    major, _, minor = number.partition(".")
    known = name == "opensearch" or (major == "7" and int(minor.partition(".")[0]) >= 10)
    return None if known else f"{name} {number}"
