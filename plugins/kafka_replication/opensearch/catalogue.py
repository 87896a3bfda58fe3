"""The topics of a target: each is an index, whose mapping says for how many partitions it was made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafka_replication.model.errors import NotReady, Refused, ReplicationError
from kafka_replication.model.targets import RECORDS, Shape
from kafka_replication.opensearch.client import SEE, Answer, Client, path
from kafka_replication.opensearch.documents import ValueForm, mapping
from kafka_replication.opensearch.foresight import Foresight
from kafka_replication.opensearch.indexes import Indexes, partitions_of, problem_of
from kafka_replication.opensearch.journal import BLOCKS, INDEX
from kafka_replication.opensearch.standing import OpenSearchStanding
from kafka_replication.planning.snapshot import PartitionOffsets, Problem, Topic
from kafka_replication.targets.described import SAFE, DescribedCatalogue
from kafka_replication.targets.journal import JournalLedger, Writers
from kafka_replication.targets.listed import LEDGER
from kafka_replication.targets.port import ToCreate

DEFAULT_REPLICAS = 1


class OpenSearchCatalogue(DescribedCatalogue):
    """A `Catalogue`."""

    copies = DEFAULT_REPLICAS + 1

    def __init__(self, client: Client, ledger: JournalLedger, form: ValueForm = "json", shape: Shape = RECORDS) -> None:
        self._client, self._ledger, self._shape = client, ledger, shape
        self._indexes, self._standing = Indexes(client), OpenSearchStanding(client, ledger, form, shape)
        self._foresight = Foresight(client)

    @property
    def asked(self) -> Indexes:
        return self._indexes

    def cluster_id(self) -> str:
        return str(self._client.json("GET", "/")["cluster_uuid"])

    def ledger_place(self) -> tuple[str, int] | None:
        if not self._ledger.exists():
            return None
        settings = (self.asked.described(INDEX) or {"settings": {}})["settings"]
        return settings.get("index.uuid", ""), _factor(settings)

    def topic(self, name: str, writers: Writers) -> Topic | None:
        there = self.asked.described(name)
        if there is None:
            return None
        settings = {key: str(value) for key, value in there["settings"].items()}
        problem = problem_of(name, there, self._shape)
        ends = {} if problem else self._standing.ends_of(name, range(partitions_of(there)), writers)
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

    def create(self, topic: ToCreate) -> None:
        settings = {name: value for name, value in topic.config.items() if name.startswith("index.")}
        if topic.replication_factor is not None:
            settings["index.number_of_replicas"] = str(topic.replication_factor - 1)
        try:
            self._client.json(
                "PUT", path(topic.name), {"settings": settings, "mappings": mapping(topic.partitions, self._shape)}
            )
        except Answer as answer:
            if answer.kind != "resource_already_exists_exception":
                raise Refused(f"{topic.name}: {answer.what}", f"correct target_topics; {SEE}") from answer

    def add_partitions(self, name: str, partitions: int) -> None:
        try:
            self._client.json("PUT", path(name, "_mapping"), mapping(partitions, self._shape))
        except Answer as answer:
            raise self._client.refused(answer) from answer

    def check_writing(self) -> None:
        if self._ledger.exists() and (error := self._ledger.obstacle() or self._foresight.cannot_write(INDEX)):
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
