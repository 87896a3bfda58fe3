"""``python -m benchmarks.opensearch``: documents a second with OpenSearch as the target, beside `parallel_bulk` alone
(`opensearch_client`). How it is measured: `beside_client`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from benchmarks import clusters
from benchmarks.beside_client import TOPIC, Written, by_client, by_us, fill, show, turns
from benchmarks.opensearch_client import MODULE, Indexing, index_some
from benchmarks.workload import PARTITIONS
from kafka_replication.opensearch.documents import mapping
from kafka_replication.runtime import stopping
from stack.opensearch_server import OpenSearchServer

OURS, PLAIN, ABOUT = "ours", "`parallel_bulk`", "`parallel_bulk`, the same documents"


@dataclass(frozen=True, kw_only=True)
class Place(clusters.Pair):
    """Kafka as the source, and a node of OpenSearch as the target."""

    node: OpenSearchServer
    ends: Mapping[int, int]

    @property
    def brokers(self) -> list[int]:
        """The pid of the node alone."""
        assert self.node.process is not None
        return [self.node.process.pid]

    def service(self, _: str, __: str) -> dict[str, Any]:
        return {"url": self.node.url}

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        return httpx.request(method, f"{self.node.url}/{path}", json=body, timeout=120).raise_for_status().json()

    def documents(self, name: str) -> int:
        self.ask("POST", f"{name}.{TOPIC}/_refresh")
        return int(self.ask("GET", f"{name}.{TOPIC}/_count")["count"])

    def delete(self, name: str) -> None:
        self.ask("DELETE", f"{name}.{TOPIC}")


def _ours(place: Place, name: str) -> Written:
    return by_us(place, name, {"connection": "target", "type": "opensearch"})


def _client(place: Place, about: bool, name: str) -> Written:
    index = f"{name}.{TOPIC}"
    settings = {"settings": {"index": {"number_of_replicas": 0}}}
    place.ask("PUT", index, {**settings, **({"mappings": mapping(PARTITIONS)} if about else {})})
    indexing = Indexing(source=place.source, url=place.node.url, topic=TOPIC, to=index, ends=place.ends, about=about)
    return by_client(MODULE, index_some, indexing, place.brokers)


def main() -> None:
    stopping.on_signals()
    logging.getLogger("kafka_replication").setLevel(logging.ERROR)
    with clusters.plain() as pair:
        node = OpenSearchServer("opensearch", Path(pair.folder))
        node.start()
        try:
            ends = fill(pair.clusters[0].bootstrap)
            place = Place(
                folder=pair.folder, clusters=pair.clusters, source=pair.source, target=pair.target, node=node, ends=ends
            )
            writers = {
                OURS: partial(_ours, place),
                PLAIN: partial(_client, place, False),
                ABOUT: partial(_client, place, True),
            }
            done = turns(writers, place.documents, place.delete)
        finally:
            node.kill()
    show("opensearch", "documents", PLAIN, done)


if __name__ == "__main__":
    main()
