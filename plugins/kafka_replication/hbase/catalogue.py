"""The topics of a target: each is a table, whose description says for how many partitions it was made."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from kafka_replication.config import Replication
from kafka_replication.hbase.client import Answer, Client
from kafka_replication.hbase.shelf import TABLE, TableShelf
from kafka_replication.hbase.standing import HBaseStanding
from kafka_replication.hbase.tables import LEDGER, Tables, id_of, partitions_of, problem_of
from kafka_replication.model.errors import NotAdmitted, NotReady, ReplicationError, Unreachable
from kafka_replication.model.keys import LEDGER_PARTITIONS
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.model.rights import DenyRule
from kafka_replication.planning.snapshot import (
    PartitionOffsets,
    Problem,
    Snapshot,
    Topic,
    TopicDefaults,
    without_description,
)
from kafka_replication.targets.journal import JournalLedger
from kafka_replication.targets.port import ToCreate

# HBase leaves copies to its file system, and tells nothing of them: nothing is said about them here, either.
COPIES = 2
SAFE = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}


class HBaseCatalogue:
    """A `Catalogue`."""

    def __init__(self, client: Client, ledger: JournalLedger, shelf: TableShelf) -> None:
        self._client, self._ledger, self._shelf = client, ledger, shelf
        self._tables, self._standing = Tables(client), HBaseStanding(client, ledger)

    def cluster_id(self) -> str:
        try:
            return str(self._client.call("getClusterId"))
        except Answer as answer:
            raise NotReady(answer.what, "check the cluster's health; run again") from answer

    def look(self, replication: Replication, wanted: Collection[str], others: Collection[str] = ()) -> Snapshot:
        aside = replication.quarantine_topic
        there = self._described({*wanted, *others, aside})
        return Snapshot(
            source_cluster="",
            target_cluster=self.cluster_id(),
            source={},
            target={name: topic for name, topic in there.items() if name != aside},
            ledger=self._ledger_topics(),
            quarantine=there.get(aside),
            defaults=TopicDefaults(COPIES, SAFE),
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

    def _ledger_topics(self) -> dict[str, Topic]:
        if not self._ledger.exists():
            return {}
        id_ = self._tables.id(TABLE) or ""
        offsets = dict.fromkeys(range(LEDGER_PARTITIONS), PartitionOffsets(0, 0, 0))
        return {
            name: Topic(name=name, topic_id=f"{id_}/{name}", partitions=offsets, replication_factor=COPIES, config=SAFE)
            for name in LEDGER
        }

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        found = dict[str, Topic]()
        for name in names:
            if name in LEDGER:
                found |= {at: topic for at, topic in self._ledger_topics().items() if at == name}
            elif (there := self._tables.described(name)) is not None:
                found[name] = self._topic(name, there)
        return found

    def _topic(self, name: str, there: Any) -> Topic:
        problem = problem_of(name, there) or self._disabled(name)
        ends = {} if problem else {at: self._standing.end_of(TopicPartition(name, at)) for at in _numbers(there)}
        return Topic(
            name=name,
            topic_id=id_of(there) or "",
            partitions={number: PartitionOffsets(0, end, end) for number, end in ends.items()},
            problem=problem,
            replication_factor=COPIES,
            config=SAFE,
        )

    def _disabled(self, name: str) -> Problem | None:
        if self._tables.is_enabled(name):
            return None
        return Problem(f"{name} on the target is disabled", f"enable '{name}' in HBase's shell")

    def partitions(self, names: Iterable[str]) -> dict[str, frozenset[int]]:
        there = {name: self._tables.partitions(name) for name in names}
        return {name: frozenset(range(count)) for name, count in there.items() if count}

    def create(self, topic: ToCreate) -> None:
        self._tables.create_topic(topic.name, topic.partitions, topic.config)

    def add_partitions(self, name: str, partitions: int) -> None:
        self._tables.set_partitions(name, partitions)

    def may_read(self, seconds: float) -> bool:
        return True

    def deny_rules(self, seconds: float) -> frozenset[DenyRule] | None:
        return frozenset()

    def check_writing(self) -> None:
        if self._ledger.exists():
            self._shelf.check_writing()

    def refusals(self, topics: Iterable[ToCreate], seconds: float) -> dict[str, ReplicationError]:
        return {}


def _numbers(there: Any) -> range:
    return range(partitions_of(there))
