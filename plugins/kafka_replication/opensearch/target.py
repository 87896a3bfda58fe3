"""OpenSearch as the target of a replication: ``target: {type: opensearch, connection: ...}``."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final

import xxhash

from kafka_replication.copying.sink import Record
from kafka_replication.ledger.entries import Place, Position
from kafka_replication.model.choices import LATEST, OPENSEARCH, Failure, FailureKind
from kafka_replication.model.errors import NotAuthorized, NotReady, Refused, ReplicationError
from kafka_replication.model.offsets import PartitionKey
from kafka_replication.model.rights import Login
from kafka_replication.model.trouble import Trouble
from kafka_replication.opensearch import client as clients
from kafka_replication.opensearch.client import SEE, Answer, Client, path
from kafka_replication.opensearch.documents import FIELD, Bulk, item, mapping
from kafka_replication.opensearch.journal import BLOCKS, INDEX, IndexShelf
from kafka_replication.opensearch.records import IndexRecords, KeyRecords
from kafka_replication.opensearch.searches import Query, all_hits, described, partitions_of, problem_of, refresh
from kafka_replication.targets.port import TargetSettings, ToCreate
from kafka_replication.targets.record_store import Aside, Description, RecordStore, Resend, client_of
from kafka_replication.targets.stored_target import LEDGER, StoredTarget

DEFAULT_REPLICAS: Final = 1


class OpenSearchStore(IndexShelf, RecordStore):
    noun = "document"
    why_not_batches = "OpenSearch stores documents, not Kafka's batches"
    remedies: ClassVar[Mapping[FailureKind, str]] = {
        FailureKind.REFUSED: (
            "correct the mapping of the index or the record (a transform can), or let failures.policy set it aside"
        ),
        FailureKind.TOO_LARGE: "let failures.too_large set it aside, or raise http.max_content_length of the cluster",
    }

    def __init__(self, settings: TargetSettings) -> None:
        super().__init__(client_of(Client, settings), settings.replication.name)
        self.settings = settings

    @property
    def login(self) -> Login:
        user = self.settings.connection.get("login") or "anonymous"
        return Login(self.client.name, f"User:{user}")

    def check(self) -> None:
        if refused := refusal_of(self.client.json("GET", "/").get("version", {})):
            raise Refused(
                f"{self.client.name} is {refused}",
                "use OpenSearch, or Elasticsearch 7.10 or a later one of version 7",
            )

    def cluster_id(self) -> str:
        return str(self.client.json("GET", "/")["cluster_uuid"])

    def refresh(self, topic: str) -> None:
        refresh(self.client, topic)

    def describe(self, topic: str, *, whole: bool = False) -> Description | None:
        """For how many partitions an index was made says its mapping."""
        if (there := described(self.client, topic)) is None:
            return None
        settings = {name: str(value) for name, value in there["settings"].items()}
        problem = problem_of(topic, there, self.settings.replication.target.shape)
        error = (_blocked(topic, settings) or self._cannot_write(topic)) if whole and not problem else None
        return Description(
            id=settings["index.uuid"],
            partitions=partitions_of(there),
            copies=int(settings.get("index.number_of_replicas", DEFAULT_REPLICAS)) + 1,
            config=settings,
            problem=Trouble.of(error) if error else problem,
            readable=problem is None,
        )

    def create(self, topic: ToCreate) -> None:
        settings = {name: value for name, value in topic.config.items() if name.startswith("index.")}
        if topic.replication_factor is not None:
            settings["index.number_of_replicas"] = str(topic.replication_factor - 1)
        try:
            self.client.json(
                "PUT",
                path(topic.name),
                {"settings": settings, "mappings": mapping(topic.partitions, self.settings.replication.target.shape)},
            )
        except Answer as answer:
            if answer.kind != "resource_already_exists_exception":
                raise Refused(f"{topic.name}: {answer.what}", f"correct target_topics; {SEE}") from answer

    def add_partitions(self, topic: str, partitions: int) -> None:
        self.client.asked("PUT", path(topic, "_mapping"), mapping(partitions, self.settings.replication.target.shape))

    def check_writing(self) -> None:
        if self.ledger_exists() and (error := self.obstacle() or self._cannot_write(INDEX)):
            raise error

    def refusals(self, topics: Iterable[ToCreate]) -> dict[str, ReplicationError]:
        wanted = {INDEX if topic.name in LEDGER else topic.name: topic for topic in topics}
        errors = {topic.name: self._refusal(index, topic) for index, topic in wanted.items()}
        return {name: error for name, error in errors.items() if error is not None}

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
            self.client.json("PUT", path(index, "_doc", "check"), {}, require_alias=True)
        except Answer:
            return None
        except NotAuthorized as error:
            return Refused(error.what, f"grant this login the right to write to {index} (indices:data/write/*); {SEE}")
        return Refused(f"{self.client.name} wrote a document that it had to refuse to {index}", SEE)

    def _cannot_create(self, name: str) -> ReplicationError | None:
        """The error with which the index would not be created: missing rights, or a block. An index without a shard is
        refused in any case, after these were looked at.
        """
        try:
            self.client.json("PUT", path(name), {"settings": {"index.number_of_shards": 0}})
        except Answer as answer:
            return None if "number_of_shards" in answer.reason else self.client.refused(answer)
        except NotAuthorized as error:
            grant = f"grant this login the right to create {name} (indices:admin/create), or create it"
            return Refused(error.what, f"{grant}; {SEE}")
        except NotReady as error:
            return error
        return Refused(f"{self.client.name} created {name} without a shard", SEE)

    def _as_created(self, name: str) -> dict[str, Any] | None:
        """``settings`` (flat) and ``mappings`` that templates give an index of this name; None if that is not told."""
        try:
            found = self.client.json("POST", path("_index_template", "_simulate_index", name))
        except ReplicationError:
            return None
        template = found.get("template", {})
        return {"settings": _flat(template.get("settings", {})), "mappings": template.get("mappings", {})}

    def records(self, key: PartitionKey, position: Position | None) -> IndexRecords:
        form = self.settings.replication.target.documents.value
        if self.settings.replication.target.shape == LATEST:
            return KeyRecords(key, position, self.client, form, self.settings.replication.target.partitioner)
        return IndexRecords(key, position, self.client, form)

    def set_aside(self, aside: Aside, number: int, resend: Resend) -> tuple[Failure, ...]:
        """With its bytes in base64. No field is searched but those that say to which partition a record belongs."""
        offset, timestamp, key, value, headers = aside.record
        about = {
            "replication": aside.key.replication,
            "generation": aside.generation,
            "topic": str(aside.key.source),
            "partition": aside.place.partition,
            "offset": offset,
            "timestamp": timestamp,
        }
        content = {
            "key": _text(key),
            "value": _text(value),
            "headers": [[name, _text(content)] for name, content in headers or ()],
            **aside.about,
        }
        document = json.dumps({FIELD: about, "content": content}).encode()
        written = item(offset, _id_aside(aside.key, aside.place), number, document)
        return Bulk(client=self.client, index=aside.place.topic, resend=resend).write([written])

    def aside(self, key: PartitionKey, place: Place) -> Record | None:
        found = self.client.found(path(place.topic, "_doc", _id_aside(key, place)))
        if found is None or not found.get("found"):
            return None
        try:
            about, content = found["_source"][FIELD], found["_source"]["content"]
            headers = [(name, _bytes(value)) for name, value in content["headers"]]
            bytes_, value = _bytes(content["key"]), _bytes(content["value"])
            return int(about["offset"]), int(about["timestamp"]), bytes_, value, headers or None
        except (KeyError, TypeError, ValueError):  # somebody changed it so that it is no record any more
            return None

    def all_aside(self, key: PartitionKey, generation: int, first: Place) -> Iterator[tuple[int, dict[str, Any]]]:
        conditions: list[Query] = [
            {"term": {f"{FIELD}.replication": key.replication}},
            {"term": {f"{FIELD}.topic": str(key.source)}},
            {"term": {f"{FIELD}.partition": first.partition}},
        ]
        for hit in all_hits(self.client, first.topic, conditions, f"{FIELD}.offset"):
            yield int(hit["sort"][0]), hit["_source"]["content"]


class OpenSearchTarget(StoredTarget):
    connection_type: ClassVar[str] = OPENSEARCH
    store_kind: ClassVar[type[RecordStore]] = OpenSearchStore
    checked = staticmethod(clients.checked)


def _id_aside(key: PartitionKey, place: Place) -> str:
    """With more of the key than the partition has: two keys of a large quarantine may have the same one."""
    return f"{xxhash.xxh3_128_hexdigest(key.entry('quarantine'))}-{place.partition}-{place.offset}"


def _text(content: bytes | None) -> str | None:
    return None if content is None else b64encode(content).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings with the dots of their names."""
    found = dict[str, Any]()
    for name, value in settings.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


def _blocked(name: str, settings: Mapping[str, str]) -> NotReady | None:
    blocks = sorted(setting for setting in BLOCKS if settings.get(setting) == "true")
    what = f"{name} on the target cannot be written: {', '.join(blocks)}"
    return NotReady(what, "free disk space, or remove the block") if blocks else None


def refusal_of(version: Mapping[str, Any]) -> str | None:
    """The name of a server that is not known to work, from its ``version``. None: it is OpenSearch, or Elasticsearch
    7.10 or a later one of version 7.
    """
    name, number = str(version.get("distribution", "elasticsearch")), str(version.get("number", ""))
    major, _, minor = number.partition(".")
    known = name == "opensearch" or (major == "7" and int(minor.partition(".")[0]) >= 10)
    return None if known else f"{name} {number}"
