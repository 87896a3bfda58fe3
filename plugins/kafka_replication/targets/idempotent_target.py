"""The sessions of a target without transactions, as its `Target` and its `Sink` open them: the same for every kind of
target that has `Places` and keeps its ledger in a `Journal`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing
from typing import Protocol

from kafka_replication.ledger.entries import Ids
from kafka_replication.model.errors import Busy, OutOfTime, ReplicationError
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.newest import KeyHash
from kafka_replication.runtime.deadline import Deadline
from kafka_replication.sinks.failure_budget import SetAside
from kafka_replication.targets.described import DescribedTopics
from kafka_replication.targets.entry_writer import EntryWriter
from kafka_replication.targets.idempotent import IdempotentSession, Places
from kafka_replication.targets.journal import Journal, JournalLedger, Shelf
from kafka_replication.targets.keyed import KeyedPartition
from kafka_replication.targets.port import TargetSettings
from kafka_replication.targets.resend import Resend

log = logging.getLogger(__name__)


class IdempotentSink(Protocol):
    """The part of a `Sink` that opens sessions."""

    settings: TargetSettings
    ledger: JournalLedger
    deadline: Deadline
    partition_of: Callable[[KeyHash, bytes, int], int]  # as that of a `KeyedPartition`

    @property
    def asked(self) -> DescribedTopics: ...

    def shelf(self) -> Shelf:
        """The place of the replication's ledger."""

    def places(self, key: PartitionKey, resend: Resend) -> Places:
        """The places of a key's records; ``resend`` writes again what is refused for now."""

    def keyed(self, key: PartitionKey) -> KeyedPartition:
        """The keys of a source partition whose target topic exists."""
        return KeyedPartition(
            number=key.source.partition,
            partitions=self.asked.partitions(key.target_topic),
            partitioner=self.settings.replication.target.partitioner,
            partition_of=self.partition_of,
        )

    def writer(self, writer_id: str, what: str) -> EntryWriter:
        return EntryWriter(Journal(self.shelf()), writer_id, what, self.asked.check_place)

    def opened(self, key: PartitionKey, ids: Ids | None = None, aside: SetAside | None = None) -> IdempotentSession:
        stall_seconds = self.settings.replication.copying.stall_timeout
        resend = Resend(where=key.target_topic, stall_seconds=stall_seconds, deadline=self.deadline)
        return IdempotentSession(
            key=key,
            places=self.places(key, resend),
            ledger=self.ledger,
            writer=self.writer(key.transactional_id, str(key)),
            ids=ids,
            aside=aside,
        )

    def session(
        self, key: PartitionKey, ids: Ids, aside: SetAside | None = None
    ) -> AbstractContextManager[IdempotentSession]:
        return closing(self.opened(key, ids, aside))


class IdempotentTarget(Protocol):
    """The part of a `Target` that opens sessions, by its sink."""

    @property
    def sink(self) -> IdempotentSink: ...

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
