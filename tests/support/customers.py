"""A replication to a target of the newest record of each key, and what others find there: in OpenSearch and in HBase."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from tests.support.audits import audit
from tests.support.hbase import HBaseGround
from tests.support.http_proxy import Proxy
from tests.support.opensearch import OpenSearchGround
from tests.support.scenario import Rec, Scenario

Entry = tuple[int, int, bytes | None]  # offset, generation and value that stand at a key


@dataclass
class Customers(ABC):
    """A replication to a target of the newest record of each key, and what has to be there in the end."""

    scene: Scenario
    log: list[Rec] = field(default_factory=list)

    def create(self, partitions: int = 1) -> None:
        self.scene.source.create(self.scene.topic, partitions)

    def produce(self, *records: Rec) -> None:
        self.scene.source.produce(self.scene.topic, list(records))
        self.log += records

    def put(self, keys: str) -> None:
        self.produce(*(self.record(key, len(self.log) + n) for n, key in enumerate(keys)))

    def record(self, key: str, n: int) -> Rec:
        return Rec(key.encode(), json.dumps({"n": n, "of": key}).encode(), (), 1_700_000_000_000 + n)

    @abstractmethod
    def found(self) -> dict[str, Entry]:
        """What somebody else finds at each key."""

    @abstractmethod
    def make_older(self, key: str) -> None:
        """Somebody gives what is at a key the offset 0."""

    @abstractmethod
    def remove(self, key: str) -> None:
        """Somebody deletes what is at a key."""

    @abstractmethod
    def delete(self) -> None:
        """Somebody deletes all."""

    def assert_newest(self, until: int | None = None, generation: int = 1) -> None:
        """Exactly the newest record of each key, by a naive model."""
        wanted = {
            (record.key or b"").decode(): (offset, generation, record.value)
            for offset, record in enumerate(self.log[:until])
        }
        assert self.found() == wanted

    def assert_clean(self) -> None:
        report = audit(self.scene.bare_run())
        assert all(partition.outcome == "clean" for partition in report.partitions), report.text()

    def run(self) -> None:
        report = self.scene.run()
        assert report.outcome in ("done", "nothing_to_do"), report.table()


@dataclass(kw_only=True)
class Searched(Customers):
    """In an index of OpenSearch."""

    ground: OpenSearchGround
    proxy: Proxy

    def documents(self, **query: Any) -> dict[str, dict[str, Any]]:
        """The documents by id, as a search of somebody else finds them."""
        topic = self.scene.topic
        self.ground.ask("POST", f"{topic}/_refresh")
        body = {"query": query or {"match_all": {}}, "size": 10_000}
        hits = self.ground.ask("POST", f"{topic}/_search", body)["hits"]["hits"]
        return {hit["_id"]: hit["_source"] for hit in hits}

    def found(self) -> dict[str, Entry]:
        entries = dict[str, Entry]()
        for id_, document in self.documents().items():
            about = document.pop("kafka")
            assert about["key"] == id_ and bool(document) != about.get("tombstone", False)
            value = json.dumps(document).encode() if document else None
            entries[id_] = (about["offset"], about["generation"], value)
        return entries

    def make_older(self, key: str) -> None:
        old = {**self.documents()[key], "n": 0}
        old["kafka"] = {**old["kafka"], "offset": 0}
        self.ground.ask("PUT", f"{self.scene.topic}/_doc/{key}", old)

    def remove(self, key: str) -> None:
        self.ground.ask("DELETE", f"{self.scene.topic}/_doc/{key}")

    def delete(self) -> None:
        self.ground.delete(self.scene.topic)


@dataclass(kw_only=True)
class Stored(Customers):
    """In a table of HBase."""

    ground: HBaseGround

    def found(self) -> dict[str, Entry]:
        entries = dict[str, Entry]()
        for row, cells in self.ground.rows(self.scene.topic):
            assert cells[b"key"] == row
            about = json.loads(cells[b"origin"])
            value = None if "value" in about.get("absent", ()) else cells[b"value"]
            entries[row.decode()] = (int.from_bytes(cells[b"offset"]), about["generation"], value)
        return entries

    def make_older(self, key: str) -> None:
        """With the timestamp that is there: HBase shows what was written last."""
        topic, row = self.scene.topic, key.encode()
        self.ground.put_cells(topic, row, {b"offset": bytes(8)}, self.ground.timestamp(topic, row))

    def remove(self, key: str) -> None:
        self.ground.remove(self.scene.topic, key.encode(), 2**62)

    def delete(self) -> None:
        self.ground.delete(self.scene.topic)
