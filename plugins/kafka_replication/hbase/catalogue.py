"""The topics of a target: each is a table, whose description says for how many partitions it was made."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_replication.hbase.client import Answer, Client
from kafka_replication.hbase.shelf import TABLE, TableShelf
from kafka_replication.hbase.standing import HBaseStanding
from kafka_replication.hbase.tables import Tables, id_of, partitions_of, problem_of
from kafka_replication.model.errors import NotReady, Refused, ReplicationError, Unreachable
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.model.targets import RECORDS, Shape
from kafka_replication.planning.snapshot import PartitionOffsets, Problem, Topic
from kafka_replication.targets.described import SAFE, DescribedCatalogue
from kafka_replication.targets.journal import JournalLedger, Writers
from kafka_replication.targets.port import ToCreate


class HBaseCatalogue(DescribedCatalogue):
    """A `Catalogue`."""

    copies = 2  # HBase leaves them to its file system, and tells nothing of them: nothing is said of them here

    def __init__(self, client: Client, ledger: JournalLedger, shelf: TableShelf, shape: Shape = RECORDS) -> None:
        self._client, self._ledger, self._shelf, self._shape = client, ledger, shelf, shape
        self._tables, self._standing = Tables(client), HBaseStanding(client, ledger, shape)

    @property
    def asked(self) -> Tables:
        return self._tables

    def cluster_id(self) -> str:
        try:
            return str(self._client.call("getClusterId"))
        except Answer as answer:
            raise NotReady(answer.what, "check the cluster's health; run again") from answer

    def ledger_place(self) -> tuple[str, int] | None:
        return (self.asked.id(TABLE) or "", self.copies) if self._ledger.exists() else None

    def topic(self, name: str, writers: Writers) -> Topic | None:
        there = self.asked.described(name)
        if there is None:
            return None
        problem = problem_of(name, there, self._shape) or self._disabled(name)
        numbers = () if problem else range(partitions_of(there))
        ends = {number: self._standing.end_of(TopicPartition(name, number), writers) for number in numbers}
        return Topic(
            name=name,
            topic_id=id_of(there) or "",
            partitions={number: PartitionOffsets(0, end, end) for number, end in ends.items()},
            problem=problem or self._denied(name),
            replication_factor=self.copies,
            config=SAFE,
        )

    def _disabled(self, name: str) -> Problem | None:
        if self.asked.is_enabled(name):
            return None
        return Problem(f"{name} on the target is disabled", f"enable '{name}' in HBase's shell")

    def _denied(self, name: str) -> Problem | None:
        try:
            self.asked.check_writing(name)
        except Refused as error:
            return Problem.of(error)
        except Unreachable:  # a copy waits for what is busy
            pass
        return None

    def create(self, topic: ToCreate) -> None:
        self.asked.create_topic(topic.name, topic.partitions, topic.config, self._shape)

    def add_partitions(self, name: str, partitions: int) -> None:
        self.asked.set_partitions(name, partitions)

    def check_writing(self) -> None:
        if self._ledger.exists():
            self._shelf.check_writing()

    def refusals(self, topics: Iterable[ToCreate], seconds: float) -> dict[str, ReplicationError]:
        return {}
