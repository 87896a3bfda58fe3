"""The topics of a target: each is an index, whose mapping says for how many partitions it was made."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from kafka_replication.config import Replication
from kafka_replication.model.errors import NotAdmitted, NotReady, Refused, ReplicationError, Unreachable
from kafka_replication.model.keys import LEDGER_PARTITIONS
from kafka_replication.model.rights import DenyRule
from kafka_replication.opensearch.client import SEE, Answer, Client, path
from kafka_replication.opensearch.documents import mapping
from kafka_replication.opensearch.foresight import Foresight
from kafka_replication.opensearch.indexes import LEDGER, Indexes, partitions_of, problem_of
from kafka_replication.opensearch.journal import INDEX
from kafka_replication.opensearch.ledger import BLOCKS, OpenSearchLedger
from kafka_replication.opensearch.standing import OpenSearchStanding
from kafka_replication.planning.snapshot import (
    PartitionOffsets,
    Problem,
    Snapshot,
    Topic,
    TopicDefaults,
    without_description,
)
from kafka_replication.targets.port import ToCreate

DEFAULT_REPLICAS = 1
# What Kafka calls so: a write is acknowledged by all copies in sync, and only one of these becomes the primary.
SAFE = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}


class OpenSearchCatalogue:
    """A `Catalogue`."""

    def __init__(self, client: Client, ledger: OpenSearchLedger) -> None:
        self._client, self._ledger = client, ledger
        self._indexes, self._standing = Indexes(client), OpenSearchStanding(client, ledger)
        self._foresight = Foresight(client)

    def cluster_id(self) -> str:
        return str(self._client.json("GET", "/")["cluster_uuid"])

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
            defaults=TopicDefaults(DEFAULT_REPLICAS + 1, SAFE),
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
        settings = (self._indexes.described(INDEX) or {"settings": {}})["settings"]
        offsets = dict.fromkeys(range(LEDGER_PARTITIONS), PartitionOffsets(0, 0, 0))
        return {
            name: Topic(
                name=name,
                topic_id=f"{settings.get('index.uuid', '')}/{name}",
                partitions=offsets,
                replication_factor=_factor(settings),
                config=SAFE,
            )
            for name in LEDGER
        }

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        found = dict[str, Topic]()
        for name in names:
            if name in LEDGER:
                found |= {at: topic for at, topic in self._ledger_topics().items() if at == name}
            elif (there := self._indexes.described(name)) is not None:
                found[name] = self._topic(name, there)
        return found

    def _topic(self, name: str, there: Mapping[str, Any]) -> Topic:
        settings = {key: str(value) for key, value in there["settings"].items()}
        problem = problem_of(name, there)
        ends = {} if problem else self._standing.ends_of(name, range(partitions_of(there)))
        return Topic(
            name=name,
            topic_id=settings["index.uuid"],
            partitions={number: PartitionOffsets(0, end, end) for number, end in ends.items()},
            replication_factor=_factor(settings),
            config={**SAFE, **settings},
            problem=problem or _blocked(name, settings) or self._denied(name),
        )

    def _denied(self, name: str) -> Problem | None:
        error = self._foresight.cannot_write(name)
        return None if error is None else Problem.of(error)

    def partitions(self, names: Iterable[str]) -> dict[str, frozenset[int]]:
        there = {name: self._indexes.partitions(name) for name in names}
        return {name: frozenset(range(count)) for name, count in there.items() if count}

    def create(self, topic: ToCreate) -> None:
        settings = {name: value for name, value in topic.config.items() if name.startswith("index.")}
        if topic.replication_factor is not None:
            settings["index.number_of_replicas"] = str(topic.replication_factor - 1)
        try:
            self._client.json("PUT", path(topic.name), {"settings": settings, "mappings": mapping(topic.partitions)})
        except Answer as answer:
            if answer.kind != "resource_already_exists_exception":
                raise Refused(f"{topic.name}: {answer.what}", f"correct target_topics; {SEE}") from answer

    def add_partitions(self, name: str, partitions: int) -> None:
        try:
            self._client.json("PUT", path(name, "_mapping"), mapping(partitions))
        except Answer as answer:
            raise self._client.refused(answer) from answer

    def may_read(self, seconds: float) -> bool:
        return True

    def deny_rules(self, seconds: float) -> frozenset[DenyRule] | None:
        return frozenset()

    def check_writing(self) -> None:
        if error := self._ledger.obstacle():
            raise error

    def refusals(self, topics: Iterable[ToCreate], seconds: float) -> dict[str, ReplicationError]:
        wanted = {INDEX if topic.name in LEDGER else topic.name: topic for topic in topics}
        found = {topic.name: self._refusal(index, topic) for index, topic in wanted.items()}
        return {name: error for name, error in found.items() if error is not None}

    def _refusal(self, index: str, topic: ToCreate) -> ReplicationError | None:
        if error := self._foresight.cannot_create(index):
            return error
        there = None if topic.name in LEDGER else self._foresight.as_created(index)
        if there is None:
            return None
        fields = there["mappings"].get("properties", {}) | mapping(topic.partitions)["properties"]
        problem = problem_of(index, {**there, "mappings": {**there["mappings"], "properties": fields}})
        return Refused(f"by a template: {problem.what}", problem.remedy) if problem else None


def _factor(settings: Mapping[str, Any]) -> int:
    return int(settings.get("index.number_of_replicas", DEFAULT_REPLICAS)) + 1


def _blocked(name: str, settings: Mapping[str, str]) -> Problem | None:
    blocks = sorted(setting for setting in BLOCKS if settings.get(setting) == "true")
    if not blocks:
        return None
    error = NotReady(
        f"{name} on the target cannot be written: {', '.join(blocks)}", "free disk space, or remove the block"
    )
    return Problem.of(error)
