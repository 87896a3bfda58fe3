"""OpenSearch as the ground of a conformance suite, and as others of its users see it: plain HTTP, without our code."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from kafka_replication.config.topics import Documents
from kafka_replication.copying.sink import Record
from kafka_replication.model.choices import LATEST, RECORDS, Shape
from kafka_replication.opensearch.client import Client
from kafka_replication.opensearch.documents import mapping
from kafka_replication.opensearch.journal import INDEX, IndexShelf
from kafka_replication.opensearch.target import OpenSearchTarget
from kafka_replication.runtime.deadline import NEVER, Deadline
from kafka_replication.targets.port import TargetKind, TargetSettings
from stack.opensearch_server import OpenSearchServer
from tests.support.journal_ground import JournalGround, of_target

# One for all requests: each new one would read the certificates of this machine.
HTTP = httpx.Client(timeout=60)


class OfAnyBytes(OpenSearchTarget):
    """The kind with ``documents: {value: base64}``."""

    def __init__(self, settings: TargetSettings, deadline: Deadline = NEVER) -> None:
        super().__init__(of_target(settings, documents=Documents(value="base64")), deadline)


class NewestOfAnyBytes(OpenSearchTarget):
    """The same with ``shape: latest``."""

    def __init__(self, settings: TargetSettings, deadline: Deadline = NEVER) -> None:
        super().__init__(of_target(settings, documents=Documents(value="base64"), shape=LATEST), deadline)


@dataclass
class OpenSearchGround(JournalGround):
    url: str
    kind: TargetKind = OfAnyBytes
    server: OpenSearchServer | None = None
    shape: Shape = RECORDS

    @classmethod
    def of(cls, server: OpenSearchServer, shape: Shape = RECORDS) -> OpenSearchGround:
        return cls(server.url, NewestOfAnyBytes if shape == LATEST else OfAnyBytes, server, shape)

    def go_away(self) -> None:
        assert self.server is not None
        self.server.kill()

    def come_back(self) -> None:
        assert self.server is not None
        self.server.start()

    @property
    def connection(self) -> Mapping[str, Any]:
        return {"url": self.url}

    def ask(self, method: str, path: str, body: Any = None, **params: Any) -> Any:
        answer = HTTP.request(method, f"{self.url}/{path}", json=body, params=params)
        assert answer.is_success, answer.text
        return answer.json()

    def exists(self, topic: str) -> bool:
        return HTTP.head(f"{self.url}/{topic}").is_success

    def create(self, topic: str, partitions: int = 1) -> None:
        settings = {"index": {"number_of_replicas": 0}}
        self.ask("PUT", topic, {"settings": settings, "mappings": mapping(partitions, self.shape)})

    def delete(self, topic: str) -> None:
        self.ask("DELETE", topic)

    def forget_ledger(self) -> None:
        if self.exists(INDEX):
            self.delete(INDEX)

    def limit(self, topic: str, size: int) -> None:
        """An index knows no largest document, but a largest keyword: 32,766 bytes, 24,573 before base64."""
        assert size < 24_573
        self.ask("PUT", f"{topic}/_mapping", {"properties": {"kafka": {"properties": {"value": {"type": "keyword"}}}}})

    def unlimit(self, topic: str) -> None:
        value = {"type": "keyword", "ignore_above": 8191}
        self.ask("PUT", f"{topic}/_mapping", {"properties": {"kafka": {"properties": {"value": value}}}})

    def id_of(self, topic: str) -> str:
        return str(self.ask("GET", f"{topic}/_settings")[topic]["settings"]["index"]["uuid"])

    def write(self, topic: str, record: Record) -> None:
        self.ask("POST", f"{topic}/_doc", {"message": b64encode(record[3] or b"").decode()}, refresh=True)

    def overwrite(self, topic: str, record: Record) -> None:
        """Change a record where it stands."""
        [hit] = [hit for hit in self._hits(topic) if _place(hit)[1] == record[0]]
        changed = {**hit["_source"], "changed": True}
        self.ask("PUT", f"{topic}/_doc/{hit['_id']}", changed, refresh=True)

    def visible(self, topic: str, partition: int = 0) -> list[tuple[int, Record]]:
        found = [hit for hit in self._hits(topic) if _place(hit)[0] in (None, partition)]
        return [(number if record[0] < 0 else record[0], record) for number, record in enumerate(map(_record, found))]

    def _hits(self, topic: str) -> list[dict[str, Any]]:
        self.ask("POST", f"{topic}/_refresh")
        sort = [{"kafka.offset": {"order": "asc", "missing": "_last"}}]
        return list(self.ask("POST", f"{topic}/_search", {"size": 10_000, "sort": sort})["hits"]["hits"])

    def shelf(self, replication: str) -> IndexShelf:
        return IndexShelf(Client(self.connection, 30), replication)


def _place(hit: Mapping[str, Any]) -> tuple[int | None, int]:
    about = hit["_source"].get("kafka", {})
    return about.get("partition"), about.get("offset", -1)


def _record(hit: Mapping[str, Any]) -> Record:
    """The record of a document; of one of somebody else with the offset -1."""
    source = dict(hit["_source"])
    about = source.pop("kafka", None)
    if about is None:
        return -1, -1, None, b64decode(source["message"]), None
    key = about["key"].encode() if "key" in about else b64decode(about["key64"]) if "key64" in about else None
    headers = [(one["name"], one["value"].encode() if "value" in one else None) for one in about.get("headers", ())]
    value: bytes | None = json.dumps(source).encode()
    if "value" in about:
        value = b64decode(about["value"])
    elif about.get("tombstone"):
        value = None
    return about["offset"], about.get("timestamp", -1), key, value, headers or None
