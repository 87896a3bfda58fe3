"""A target that is a `RecordStore`: its sessions, its catalogue, what stands there, its quarantine. Nothing is ever
hidden from readers, and every right is granted until a write is refused.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Final

from kafka_replication.config import Replication
from kafka_replication.copying.sink import SetAside
from kafka_replication.ledger.entries import POSITIONS, RECEIPTS, Ids
from kafka_replication.ledger.port import Ledger
from kafka_replication.model.choices import IDEMPOTENT, LATEST, Promise
from kafka_replication.model.errors import Busy, NotAdmitted, OutOfTime, Refused, ReplicationError, Unreachable
from kafka_replication.model.offsets import LEDGER_PARTITIONS, PartitionKey, TopicPartition
from kafka_replication.model.rights import Login
from kafka_replication.model.trouble import Trouble
from kafka_replication.planning.snapshot import PartitionOffsets, Snapshot, Topic, TopicDefaults, without_description
from kafka_replication.runtime.deadline import NEVER, Deadline
from kafka_replication.targets.idempotent import IdempotentSession
from kafka_replication.targets.journal import LEDGER_PLACE, Journal
from kafka_replication.targets.journal_ledger import EntryWriter, JournalLedger
from kafka_replication.targets.port import Catalogue, TargetSettings, ToCreate
from kafka_replication.targets.record_store import COPIES, Description, RecordStore, Resend
from kafka_replication.targets.stored_reading import NewestReader, StoredQuarantine, StoredReader, StoredStanding

log = logging.getLogger(__name__)
LEDGER: Final = (POSITIONS, RECEIPTS)  # they lie in one place
# As Kafka's in-sync replicas: all of them acknowledge a write, and only one of them becomes the primary.
SAFE: Final = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}


class StoredTarget(ABC):
    """A `Target`, and with its class a `TargetKind`, of records in a store; and the `Sink` that it has."""

    connection_type: ClassVar[str]
    promise: ClassVar[Promise] = IDEMPOTENT
    store_kind: ClassVar[type[RecordStore]]

    def __init__(self, settings: TargetSettings, deadline: Deadline = NEVER) -> None:
        self._settings, self._deadline = settings, deadline

    @classmethod
    @abstractmethod
    def checked(cls, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        """As that of a `TargetKind`."""

    @cached_property
    def store(self) -> RecordStore:
        return self.store_kind(self._settings)

    @property
    def login(self) -> Login:
        return self.store.login

    def connect(self) -> None:
        self.store.check()

    def check_reachable(self, at: TopicPartition) -> None:
        self.store.check()

    @cached_property
    def ledger(self) -> JournalLedger:
        return JournalLedger(self.store)

    def follower(self) -> Callable[[], AbstractContextManager[Ledger]]:
        return lambda: nullcontext(JournalLedger(self.store))

    @cached_property
    def standing(self) -> StoredStanding:
        return StoredStanding(self.store, self.ledger)

    @cached_property
    def catalogue(self) -> StoredCatalogue:
        return StoredCatalogue(self.store, self.ledger, self.standing)

    @cached_property
    def sink(self) -> StoredSink:
        return StoredSink(self.store, self.ledger, self._deadline)

    def session(self, key: PartitionKey) -> IdempotentSession:
        return self.sink.opened(key)

    def deciding(self, key: PartitionKey, ids: Ids) -> AbstractContextManager[IdempotentSession]:
        return self.sink.session(key, ids, SetAside(searching=True))

    def writer(self, writer_id: str, what: str) -> EntryWriter:
        return self.sink.writer(writer_id, what)

    def end_sessions(self, ids: Mapping[str, str], check: Callable[[], None]) -> None:
        for writer_id, what in ids.items():
            check()
            try:
                self.writer(writer_id, what).fence()
            except (Busy, OutOfTime):
                raise
            except ReplicationError as error:
                log.warning("%s: its session could not be ended: %s", what, error)

    def quarantine(self) -> AbstractContextManager[StoredQuarantine]:
        return nullcontext(StoredQuarantine(self.store))


class StoredSink:
    """A `Sink`."""

    session_kind: ClassVar[type[IdempotentSession]] = IdempotentSession

    def __init__(self, store: RecordStore, ledger: JournalLedger, deadline: Deadline = NEVER) -> None:
        self._store, self._ledger, self._deadline = store, ledger, deadline

    def writer(self, writer_id: str, what: str) -> EntryWriter:
        return EntryWriter(Journal(self._store), writer_id, what, self._check_place)

    def _check_place(self, topic: str, partition: int) -> None:
        """Raise Refused unless the topic has this partition."""
        if topic not in LEDGER and ((there := self._store.describe(topic)) is None or partition >= there.partitions):
            raise Refused(f"there is no {topic}-{partition} on the target", "run again, which creates it")

    def opened(self, key: PartitionKey, ids: Ids | None = None, aside: SetAside | None = None) -> IdempotentSession:
        stall_seconds = self._store.settings.replication.copying.stall_timeout
        return self.session_kind(
            key=key,
            store=self._store,
            resend=Resend(stall_seconds=stall_seconds, deadline=self._deadline),
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
        return self._store.why_not_batches

    def verifier(self, key: PartitionKey) -> AbstractContextManager[StoredReader]:
        """With connections of its own."""
        settings = self._store.settings
        kind = NewestReader if settings.replication.target.shape == LATEST else StoredReader
        return nullcontext(kind(type(self._store)(replace(settings, shared=False)), self._ledger, key))


class StoredCatalogue(Catalogue):
    """The topics of a `RecordStore`."""

    def __init__(self, store: RecordStore, ledger: JournalLedger, standing: StoredStanding) -> None:
        self._store, self._ledger, self._standing = store, ledger, standing

    def cluster_id(self) -> str:
        return self._store.cluster_id()

    def look(self, replication: Replication, wanted: Collection[str], others: Collection[str] = ()) -> Snapshot:
        aside, there = replication.quarantine_topic, dict[str, Topic]()
        for name in sorted({*wanted, *others, aside}):
            try:
                there |= self.topics([name])
            except (NotAdmitted, Unreachable):
                raise
            except ReplicationError as error:
                there[name] = without_description(name, Trouble.of(error))
        return Snapshot(
            source_cluster="",
            target_cluster=self.cluster_id(),
            source={},
            target={name: topic for name, topic in there.items() if name != aside},
            ledger=self.topics(LEDGER),
            quarantine=there.get(aside),
            defaults=TopicDefaults(COPIES, SAFE),
        )

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        wanted = set(names)
        others = sorted(wanted.difference(LEDGER))
        ledger = self._ledger_topics() if wanted.intersection(LEDGER) else {}
        found = {name: topic for name, topic in ledger.items() if name in wanted}
        writers = self._ledger.writers() if others else {}
        for name in others:
            if (there := self._store.describe(name, whole=True)) is None:
                continue
            numbers = range(there.partitions) if there.readable else ()
            ends = self._standing.ends_of(name, numbers, writers) if numbers else {}
            found[name] = Topic(
                name=name,
                topic_id=there.id or "",
                partitions={number: PartitionOffsets(0, end, end) for number, end in ends.items()},
                replication_factor=there.copies,
                config={**SAFE, **there.config},
                problem=there.problem,
            )
        return found

    def _ledger_topics(self) -> dict[str, Topic]:
        if not self._ledger.exists():
            return {}
        there = self._store.describe(LEDGER_PLACE) or Description(id="", partitions=0)
        offsets = dict.fromkeys(range(LEDGER_PARTITIONS), PartitionOffsets(0, 0, 0))
        return {
            name: Topic(
                name=name,
                topic_id=f"{there.id or ''}/{name}",
                partitions=offsets,
                replication_factor=there.copies,
                config=SAFE,
            )
            for name in LEDGER
        }

    def partitions(self, names: Iterable[str]) -> dict[str, frozenset[int]]:
        found = dict[str, frozenset[int]]()
        for name in names:
            if name in LEDGER:
                found[name] = frozenset(range(LEDGER_PARTITIONS))
            elif there := self._store.describe(name):
                found[name] = frozenset(range(there.partitions))
        return found

    def create(self, topic: ToCreate) -> None:
        self._store.create(topic)

    def add_partitions(self, name: str, partitions: int) -> None:
        self._store.add_partitions(name, partitions)

    def check_writing(self) -> None:
        self._store.check_writing()

    def refusals(self, topics: Iterable[ToCreate], seconds: float) -> dict[str, ReplicationError]:
        return self._store.refusals(topics)
