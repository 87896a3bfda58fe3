"""A folder as the target of a replication: ``target: {type: "tests.folder_target.target:FolderTarget", ...}``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import Any, ClassVar

from kafka_replication.config import Replication
from kafka_replication.kafka.read_back.partition_comparison import SourceSide
from kafka_replication.ledger.entries import POSITIONS, RECEIPTS, FailedRecord, Ids
from kafka_replication.ledger.placement import Part
from kafka_replication.ledger.port import Ledger
from kafka_replication.model.errors import BadInput, GapFound, ReplicationError
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.model.rights import ClusterName, DenyRule, Login
from kafka_replication.model.targets import KAFKA, TRANSACTIONAL, Promise
from kafka_replication.planning.snapshot import PartitionOffsets, Snapshot, Topic
from kafka_replication.runtime.deadline import NEVER, Deadline
from kafka_replication.sinks.failure_budget import SetAside
from kafka_replication.sinks.port import Record, digest_of
from kafka_replication.targets.port import Failures, TargetSettings, ToCreate
from kafka_replication.targets.unhidden import ContentReader, UnhiddenStanding
from kafka_replication.verification.digest import BatchDigest
from kafka_replication.verification.digests import Digest
from kafka_replication.verification.read_back import Sides
from kafka_replication.verification.verify import PartDigest
from tests.folder_target.journal import Journal, create
from tests.folder_target.ledger import FolderLedger
from tests.folder_target.quarantine import FolderQuarantine
from tests.folder_target.session import FolderSession
from tests.folder_target.writer import FolderWriter


class FolderTarget:
    """A `Target`."""

    connection_type: ClassVar[str] = KAFKA
    promise: ClassVar[Promise] = TRANSACTIONAL

    def __init__(self, settings: TargetSettings, deadline: Deadline = NEVER) -> None:
        self._settings, self._folder = settings, Path(settings.connection["folder"])
        self._journal = Journal(self._folder)
        self.ledger: Ledger = FolderLedger(self._journal, settings.replication)
        self.sink = FolderSink(self._journal, self.ledger)
        self.catalogue, self.standing = FolderCatalogue(self._journal, self._folder), FolderStanding(self._journal)

    @classmethod
    def checked(cls, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        if "folder" not in settings:
            raise BadInput(f"connection {name!r} names no folder", "put it into the connection's extra")
        return dict(settings)

    @property
    def login(self) -> Login:
        return Login(ClusterName(str(self._folder), "target"), "User:me")

    def connect(self) -> None:
        self._journal.now()

    def check_reachable(self, at: TopicPartition) -> None:
        self._journal.now()

    def follower(self) -> Callable[[], AbstractContextManager[Ledger]]:
        return lambda: nullcontext(FolderLedger(Journal(self._folder), self._settings.replication))

    def sides(self, source: Mapping[str, Any], key: PartitionKey) -> AbstractContextManager[Sides]:
        side: Any = SourceSide(source, key, self._settings.copying.stall_timeout)  # no chunk without a transaction
        return closing(side)

    def session(self, key: PartitionKey) -> FolderSession:
        return FolderSession(key, self._journal, self.ledger)

    def deciding(self, key: PartitionKey, ids: Ids) -> AbstractContextManager[FolderSession]:
        return self.sink.session(key, ids, SetAside(searching=True))

    def writer(self, writer_id: str, what: str) -> FolderWriter:
        return FolderWriter(self._journal, writer_id, what)

    def end_sessions(self, ids: Mapping[str, str], check: Callable[[], None]) -> None:
        for writer_id, what in ids.items():
            check()
            FolderWriter(self._journal, writer_id, what).fence()

    def quarantine(self) -> AbstractContextManager[FolderQuarantine]:
        return nullcontext(FolderQuarantine(self._journal))


class FolderSink:
    """A `Sink`."""

    def __init__(self, journal: Journal, ledger: Ledger) -> None:
        self._journal, self._ledger = journal, ledger

    def session(
        self, key: PartitionKey, ids: Ids, aside: SetAside | None = None
    ) -> AbstractContextManager[FolderSession]:
        return closing(FolderSession(key, self._journal, self._ledger, ids, aside))

    def why_not_batches(self, topic: str, settings: Mapping[str, str] | None = None) -> str | None:
        return f"the folder {topic} takes records"

    def verifier(self, key: PartitionKey) -> AbstractContextManager[FolderVerifier]:
        return nullcontext(FolderVerifier(self._journal, key))


class FolderVerifier:
    """A `TargetReader`."""

    def __init__(self, journal: Journal, key: PartitionKey) -> None:
        self._journal, self._key = journal, key

    def read(self, part: Part, digest: Digest | None) -> PartDigest:
        at, count = TopicPartition(self._key.target_topic, part.partition), 0
        for range_ in part.offsets:
            for record in content(self._journal, at, range_):
                count += 1
                if digest is not None and not isinstance(digest, BatchDigest):
                    digest.add(*record[1:])
        return PartDigest(count, digest.hexdigest() if digest is not None else "")

    def quarantined(self, failed: FailedRecord) -> bool:
        found = FolderQuarantine(self._journal).original(self._key, failed)
        return found is not None and digest_of(found) == failed.digest


def content(journal: Journal, at: TopicPartition, wanted: OffsetRange) -> Iterator[Record]:
    there = journal.now().topics.get(at.topic)
    if there is None:
        raise GapFound(f"{at} on the target is gone", "restore it")
    records = there.records.get(at.partition, {})
    return (records[offset] for offset in sorted(records) if offset in wanted)


class FolderStanding(UnhiddenStanding):
    """A `Standing`."""

    commit_takes = 0

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def logs(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetRange]:
        topics = self._journal.now().topics
        return {at: OffsetRange(0, topics[at.topic].end(at.partition)) for at in wanted if at.topic in topics}

    def ends(self, wanted: Iterable[TopicPartition]) -> tuple[dict[TopicPartition, int], Failures]:
        return {at: log.until for at, log in self.logs(wanted).items()}, {}

    def first_record(self, at: TopicPartition, wanted: OffsetRange) -> int | None:
        return next((record[0] for record in content(self._journal, at, wanted)), None)

    def reader(self, at: TopicPartition) -> AbstractContextManager[ContentReader]:
        return nullcontext(ContentReader(lambda wanted: content(self._journal, at, wanted)))


class FolderCatalogue:
    """A `Catalogue`."""

    def __init__(self, journal: Journal, folder: Path) -> None:
        self._journal, self._folder = journal, folder

    def cluster_id(self) -> str:
        return str(self._folder)

    def look(self, replication: Replication, wanted: Collection[str], others: Collection[str] = ()) -> Snapshot:
        aside = replication.quarantine_topic
        there = self.topics({*wanted, *others, aside, POSITIONS, RECEIPTS})
        return Snapshot(
            source_cluster="",
            target_cluster=self.cluster_id(),
            source={},
            target={name: topic for name, topic in there.items() if name not in (aside, POSITIONS, RECEIPTS)},
            ledger={name: topic for name, topic in there.items() if name in (POSITIONS, RECEIPTS)},
            quarantine=there.get(aside),
        )

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        topics = self._journal.now().topics
        return {
            name: Topic(
                name=name,
                topic_id=topics[name].id,
                partitions={
                    number: PartitionOffsets(0, end, end)
                    for number in range(topics[name].partitions)
                    for end in [topics[name].end(number)]
                },
                replication_factor=1,
                config=topics[name].config,
            )
            for name in names
            if name in topics
        }

    def partitions(self, names: Iterable[str]) -> dict[str, frozenset[int]]:
        return {name: frozenset(topic.partitions) for name, topic in self.topics(names).items()}

    def create(self, topic: ToCreate) -> None:
        create(self._journal, topic.name, topic.partitions, topic.config)

    def add_partitions(self, name: str, partitions: int) -> None:
        self._journal.append({"do": "grow", "topic": name, "partitions": partitions})

    def may_read(self, seconds: float) -> bool:
        return True

    def deny_rules(self, seconds: float) -> frozenset[DenyRule] | None:
        return frozenset()

    def check_writing(self) -> None: ...

    def refusals(self, topics: Iterable[ToCreate], seconds: float) -> dict[str, ReplicationError]:
        return {}
