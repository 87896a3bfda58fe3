"""The topics of a target: each is an index, whose mapping says for how many partitions it was made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafka_replication.model.errors import NotAuthorized, NotReady, Refused, ReplicationError
from kafka_replication.model.targets import RECORDS, Shape
from kafka_replication.opensearch.client import SEE, Answer, Client, path
from kafka_replication.opensearch.documents import mapping
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

    def __init__(self, client: Client, ledger: JournalLedger, shape: Shape = RECORDS) -> None:
        self._client, self._ledger, self._shape = client, ledger, shape
        self._indexes, self._standing = Indexes(client), OpenSearchStanding(client, ledger, shape)

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
        error = self._cannot_write(name)
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
        if self._ledger.exists() and (error := self._ledger.obstacle() or self._cannot_write(INDEX)):
            raise error

    def refusals(self, topics: Iterable[ToCreate], seconds: float) -> dict[str, ReplicationError]:
        wanted = {INDEX if topic.name in LEDGER else topic.name: topic for topic in topics}
        found = {topic.name: self._refusal(index, topic) for index, topic in wanted.items()}
        return {name: error for name, error in found.items() if error is not None}

    def _refusal(self, index: str, topic: ToCreate) -> ReplicationError | None:
        if error := self._cannot_create(index):
            return error
        there = None if topic.name in LEDGER else self._as_created(index)
        if there is None:
            return None
        fields = there["mappings"].get("properties", {}) | mapping(topic.partitions)["properties"]
        problem = problem_of(index, {**there, "mappings": {**there["mappings"], "properties": fields}})
        return Refused(f"by a template: {problem.what}", problem.remedy) if problem else None

    def _cannot_write(self, index: str) -> ReplicationError | None:
        """The error with which a document would be refused in this index: missing rights. The document must go to an
        alias, so it is refused in any case, after the rights were looked at.
        """
        try:
            self._client.json("PUT", path(index, "_doc", "check"), {}, require_alias=True)
        except Answer:
            return None
        except NotAuthorized as error:
            return Refused(error.what, f"grant this login the right to write to {index} (indices:data/write/*); {SEE}")
        return Refused(f"{self._client.name} wrote a document that it had to refuse to {index}", SEE)

    def _cannot_create(self, name: str) -> ReplicationError | None:
        """The error with which the index would not be created: missing rights, or a block. An index without a shard is
        refused in any case, after these were looked at.
        """
        try:
            self._client.json("PUT", path(name), {"settings": {"index.number_of_shards": 0}})
        except Answer as answer:
            return None if "number_of_shards" in answer.reason else self._client.refused(answer)
        except NotAuthorized as error:
            grant = f"grant this login the right to create {name} (indices:admin/create), or create it"
            return Refused(error.what, f"{grant}; {SEE}")
        except NotReady as error:
            return error
        return Refused(f"{self._client.name} created {name} without a shard", SEE)

    def _as_created(self, name: str) -> dict[str, Any] | None:
        """``settings`` (flat) and ``mappings`` that templates give an index of this name; None if that is not told."""
        try:
            found = self._client.json("POST", path("_index_template", "_simulate_index", name))
        except ReplicationError:
            return None
        template = found.get("template", {})
        return {"settings": _flat(template.get("settings", {})), "mappings": template.get("mappings", {})}


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings with the dots of their names."""
    found = dict[str, Any]()
    for name, value in settings.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


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
