"""Orders that are copied to an index of OpenSearch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from kafka_replication.reporting.audit import AuditReport
from kafka_replication.runs.audit import audit
from tests.support.http_proxy import Proxy
from tests.support.opensearch import OpenSearchGround
from tests.support.scenario import Rec, Scenario

COUNT = 300


def orders(count: int, first: int = 0) -> list[Rec]:
    return [
        Rec(b"k%d" % n, json.dumps({"n": n, "name": f"order {n}"}).encode(), (("h", b"1"),), 1_700_000_000_000 + n)
        for n in range(first, first + count)
    ]


@dataclass
class Shop:
    """A replication of orders to an index of OpenSearch."""

    scene: Scenario
    ground: OpenSearchGround
    proxy: Proxy

    def ready(self, count: int = COUNT) -> None:
        self.scene.source.create(self.scene.topic)
        self.scene.source.produce(self.scene.topic, orders(count))

    def found(self, **query: Any) -> list[dict[str, Any]]:
        """What a search finds, in the order of offsets."""
        topic = self.scene.topic
        self.ground.ask("POST", f"{topic}/_refresh")
        body = {"query": query or {"match_all": {}}, "size": 10_000, "sort": [{"kafka.offset": "asc"}]}
        return [hit["_source"] for hit in self.ground.ask("POST", f"{topic}/_search", body)["hits"]["hits"]]

    def assert_copied(self, count: int = COUNT, without: tuple[int, ...] = ()) -> None:
        wanted = [n for n in range(count) if n not in without]
        assert [document["n"] for document in self.found()] == wanted
        report: AuditReport = audit(self.scene.bare_run())
        assert all(partition.outcome == "clean" for partition in report.partitions), report.text()

    def limits(self, **settings: Any) -> None:
        self.ground.ask("PUT", f"{self.scene.topic}/_settings", settings)
