"""A folder as the target of a replication: ``target: {type: "tests.folder_target.target:FolderTarget", ...}``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from kafka_replication.api import (
    BadInput,
    GapFound,
    Ids,
    Ledger,
    OffsetRange,
    PartitionKey,
    SetAside,
    SinkRecord,
    TargetSettings,
    ToCreate,
    TopicPartition,
)
from kafka_replication.api.targets import (
    NEVER,
    TRANSACTIONAL,
    ClusterName,
    Deadline,
    ListedCatalogue,
    ListedLedger,
    ListedReader,
    ListedStanding,
    Login,
    PartitionOffsets,
    Promise,
    Topic,
)
from tests.folder_target.journal import Journal, create
from tests.folder_target.ledger import FolderLog
from tests.folder_target.quarantine import FolderQuarantine
from tests.folder_target.session import FolderSession
from tests.folder_target.writer import FolderWriter


class FolderTarget:
    """A `Target`."""

    connection_type: ClassVar[str] = "kafka"
    promise: ClassVar[Promise] = TRANSACTIONAL

    def __init__(self, settings: TargetSettings, deadline: Deadline = NEVER) -> None:
        self._settings, self._folder = settings, Path(settings.connection["folder"])
        self._journal = Journal(self._folder)
        self.ledger: Ledger = ListedLedger(settings.replication.name, FolderLog(self._journal))
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
        return lambda: nullcontext(ListedLedger(self._settings.replication.name, FolderLog(Journal(self._folder))))

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

    def verifier(self, key: PartitionKey) -> AbstractContextManager[ListedReader]:
        standing, quarantine = FolderStanding(self._journal), FolderQuarantine(self._journal)
        return nullcontext(ListedReader(key.target_topic, standing.content, partial(quarantine.stored, key)))


class FolderStanding(ListedStanding):
    """A `Standing`."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def logs(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetRange]:
        topics = self._journal.now().topics
        return {at: OffsetRange(0, topics[at.topic].end(at.partition)) for at in wanted if at.topic in topics}

    def content(self, at: TopicPartition, wanted: OffsetRange) -> Iterator[SinkRecord]:
        there = self._journal.now().topics.get(at.topic)
        if there is None:
            raise GapFound(f"{at} on the target is gone", "restore it")
        records = there.records.get(at.partition, {})
        return (records[offset] for offset in sorted(records) if offset in wanted)


class FolderCatalogue(ListedCatalogue):
    """A `Catalogue`."""

    def __init__(self, journal: Journal, folder: Path) -> None:
        self._journal, self._folder = journal, folder

    def cluster_id(self) -> str:
        return str(self._folder)

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

    def create(self, topic: ToCreate) -> None:
        create(self._journal, topic.name, topic.partitions, topic.config)

    def add_partitions(self, name: str, partitions: int) -> None:
        self._journal.append({"do": "grow", "topic": name, "partitions": partitions})
