"""The answers of a target that can list what it has: topics, entries of the ledger, records of a partition. They are
enough for a `Catalogue`, a `Ledger`, a `Standing` and a `TargetReader` of a target that hides nothing and grants all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

from kafka_replication.config import Replication
from kafka_replication.ledger.entries import POSITIONS, RECEIPTS, Entry, FailedRecord, Position, Verified
from kafka_replication.ledger.newest import NewestEntries
from kafka_replication.ledger.placement import Part
from kafka_replication.ledger.receipts import Receipts, offsets_to_read
from kafka_replication.ledger.record_keys import position_key, verified_key
from kafka_replication.ledger.view import LedgerView
from kafka_replication.model.errors import NotAdmitted, ReplicationError, Unreachable
from kafka_replication.model.keys import LEDGER_PARTITIONS, PartitionKey
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.model.rights import DenyRule
from kafka_replication.planning.snapshot import Problem, Snapshot, Topic, TopicDefaults, without_description
from kafka_replication.sinks.port import Record, digest_of
from kafka_replication.targets.port import Failures, ToCreate
from kafka_replication.targets.unhidden import ContentReader, UnhiddenLedger, UnhiddenStanding
from kafka_replication.verification.digest import BatchDigest
from kafka_replication.verification.digests import Digest
from kafka_replication.verification.verify import PartDigest

LEDGER: Final = (POSITIONS, RECEIPTS)
LogEntry = tuple[int, bytes, bytes | None]  # offset, key, value; without a value it deletes what the key has


class ListedCatalogue(Protocol):
    """A `Catalogue` without rights, of a target that can describe its topics, those of the ledger as well."""

    @property
    def defaults(self) -> TopicDefaults | None:
        """Of topics that are created; None: they are not known."""
        return None

    def cluster_id(self) -> str: ...

    def topics(self, names: Iterable[str]) -> dict[str, Topic]: ...

    def look(self, replication: Replication, wanted: Collection[str], others: Collection[str] = ()) -> Snapshot:
        aside = replication.quarantine_topic
        there = self._described({*wanted, *others, aside})
        return Snapshot(
            source_cluster="",
            target_cluster=self.cluster_id(),
            source={},
            target={name: topic for name, topic in there.items() if name != aside},
            ledger=self.topics(LEDGER),
            quarantine=there.get(aside),
            defaults=self.defaults,
        )

    def _described(self, names: Iterable[str]) -> dict[str, Topic]:
        """As `topics`; one that cannot be described has a `Problem`."""
        found = dict[str, Topic]()
        for name in sorted(names):
            try:
                found |= self.topics([name])
            except (NotAdmitted, Unreachable):
                raise
            except ReplicationError as error:
                found[name] = without_description(name, Problem.of(error))
        return found

    def partitions(self, names: Iterable[str]) -> dict[str, frozenset[int]]:
        return {name: frozenset(topic.partitions) for name, topic in self.topics(names).items()}

    def may_read(self, seconds: float) -> bool:
        return True

    def deny_rules(self, seconds: float) -> frozenset[DenyRule] | None:
        return frozenset()

    def check_writing(self) -> None:
        return

    def refusals(self, topics: Iterable[ToCreate], seconds: float) -> dict[str, ReplicationError]:
        return {}


class EntryLog(Protocol):
    """The two topics of a ledger, as a target stores them: for all replications, each with `LEDGER_PARTITIONS`
    partitions. Raises Unreachable.
    """

    def exists(self) -> bool: ...

    def create(self) -> None:
        """Make what is missing of it."""

    def entries(self, topic: str, partition: int) -> Iterable[LogEntry]:
        """All entries that were committed, in their order; nothing if there is no ledger."""

    def end(self, topic: str, partition: int) -> int:
        """The offset that the next entry will have at least."""


class ListedLedger(UnhiddenLedger):
    """A `Ledger` that reads its log from the beginning each time."""

    def __init__(self, replication: str, log: EntryLog) -> None:
        self._replication, self._log = replication, log

    def exists(self) -> bool:
        return self._log.exists()

    def ensure(self, replication: Replication) -> None:
        self._log.create()

    def view(self) -> LedgerView:
        return self._newest(POSITIONS, range(LEDGER_PARTITIONS)).view()

    def position(self, key: PartitionKey) -> Position | None:
        entry = self._entry(key, position_key(key))
        assert entry is None or isinstance(entry, Position)
        return entry

    def verified(self, key: PartitionKey) -> Verified | None:
        entry = self._entry(key, verified_key(key))
        assert entry is None or isinstance(entry, Verified)
        return entry

    def _entry(self, key: PartitionKey, record_key: bytes) -> Entry | None:
        newest = self._newest(POSITIONS, [key.ledger_partition]).get(key.ledger_partition, record_key)
        return newest.entry() if newest else None

    def receipts(self, wanted: Mapping[PartitionKey, int | None]) -> Receipts:
        ends = self.receipt_ends()
        since = offsets_to_read(wanted, ends)
        partitions = {key.ledger_partition for key in wanted}
        bounds = {partition: OffsetRange(0, ends[partition]) for partition in partitions}
        return self._newest(RECEIPTS, partitions).receipts(since, bounds)

    def receipt_ends(self) -> Mapping[int, int]:
        return {number: self._log.end(RECEIPTS, number) for number in range(LEDGER_PARTITIONS)}

    def obstacle(self) -> ReplicationError | None:
        return None

    def _newest(self, topic: str, partitions: Collection[int]) -> NewestEntries:
        newest = NewestEntries(self._replication)
        for partition in partitions:
            for entry in self._log.entries(topic, partition):
                newest.add(topic, partition, *entry)
        newest.log_foreign(topic)
        return newest


class ListedStanding(UnhiddenStanding, Protocol):
    """A `Standing` of a target that can list the records of a partition."""

    def logs(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetRange]: ...

    def content(self, at: TopicPartition, wanted: OffsetRange) -> Iterator[Record]:
        """The records in ``wanted``, with their offsets on the target, in their order. Raises GapFound if the topic is
        gone, Unreachable.
        """

    def ends(self, wanted: Iterable[TopicPartition]) -> tuple[dict[TopicPartition, int], Failures]:
        return {at: log.until for at, log in self.logs(wanted).items()}, {}

    def first_record(self, at: TopicPartition, wanted: OffsetRange) -> int | None:
        return next((record[0] for record in self.content(at, wanted)), None)

    def reader(self, at: TopicPartition) -> AbstractContextManager[ContentReader]:
        return nullcontext(ContentReader(lambda wanted: self.content(at, wanted)))


class ListedReader:
    """A `TargetReader` of one target topic."""

    def __init__(
        self,
        topic: str,
        content: Callable[[TopicPartition, OffsetRange], Iterator[Record]],
        stored: Callable[[FailedRecord], Record | None],
    ) -> None:
        """``content`` as that of a `ListedStanding`; ``stored`` returns what is at a quarantined record's place."""
        self._topic, self._content, self._stored = topic, content, stored

    def read(self, part: Part, digest: Digest | None) -> PartDigest:
        at, count = TopicPartition(self._topic, part.partition), 0
        for range_ in part.offsets:
            for _, *fields in self._content(at, range_):
                count += 1
                if digest is not None and not isinstance(digest, BatchDigest):
                    digest.add(*fields)
        return PartDigest(count, digest.hexdigest() if digest is not None else "")

    def quarantined(self, failed: FailedRecord) -> bool:
        found = self._stored(failed)
        return found is not None and failed.digest in ("", digest_of(found))
