"""OpenSearch as the side that faults are done to: one node, and a proxy in front of it that the product goes through.

The judge reads it by itself: plain HTTP, and nothing of the product's.
"""

from __future__ import annotations

import json
import signal
import threading
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from stack.opensearch_server import OpenSearchServer
from tests.support.checker import Record
from tests.support.http_proxy import Proxy, running

LEDGER = "kafka-replication.ledger"
PAGE = 5_000
# Few requests may wait, so that a node that is busy says so (429) as one does that many clients write to.
BUSY_SOON = {"thread_pool.write.size": "1", "thread_pool.write.queue_size": "4"}


@dataclass
class SearchSide:
    server: OpenSearchServer
    proxy: Proxy
    url: str  # of the proxy
    target = {"type": "opensearch", "documents": {"value": "base64"}}  # noqa: RUF012 - in the replication's file

    @property
    def name(self) -> str:
        return self.server.name

    @property
    def nodes(self) -> Sequence[OpenSearchServer]:
        return (self.server,)

    def connection(self, clients: Mapping[str, Any]) -> dict[str, Any]:
        """The settings that the product's client gets; ``clients`` are Kafka's."""
        return {"url": self.url}

    def start(self) -> None:
        self.server.start()

    def heal(self) -> None:
        """The node runs, and the proxy passes everything on."""
        self.proxy.behave()
        if self.server.process is not None:
            self.server.process.send(signal.SIGCONT)
        self.server.start()

    def ask(self, method: str, path: str, body: Any = None, **params: Any) -> Any:
        """The node's own answer. Raises AssertionError for an error."""
        answer = httpx.request(method, f"{self.server.url}/{path}", json=body, params=params, timeout=120)
        assert answer.is_success, answer.text
        return answer.json()

    def set(self, topic: str, **settings: Any) -> None:
        """Settings of an index; None removes one."""
        self.ask("PUT", f"{topic}/_settings", settings)

    def delete(self, topic: str) -> None:
        """An index, if it exists."""
        httpx.delete(f"{self.server.url}/{topic}", timeout=120)

    def size(self, topic: str) -> int:
        """Documents that a reader finds; 0 if there is no such index."""
        found = httpx.get(f"{self.server.url}/{topic}/_count", timeout=120)
        return int(found.json()["count"]) if found.is_success else 0

    def logs(self, topic: str) -> list[list[Record]]:
        """The records of each source partition, in the order of their offsets. Documents of others are in the first."""
        found: dict[int, list[tuple[int, Record]]] = {0: []}
        for document in self._documents(topic):
            about = document.get("kafka", {})
            number = int(about.get("partition", 0))
            found.setdefault(number, []).append((int(about.get("offset", -1)), _record(document)))
        return [
            [record for _, record in sorted(found.get(number, []), key=lambda one: one[0])]
            for number in range(max(found) + 1)
        ]

    def engines(self, replication: str) -> Counter[str]:
        """How many chunks each engine has copied, as the receipts say."""
        found = dict[str, str]()  # the newest value of each key
        for document in self._documents(LEDGER):
            if document["kind"] == "entry" and document["replication"] == replication:
                found[document["key"]] = document["value"]
            if document["kind"] == "head" and document["replication"] == replication:
                found |= {key: value for _, _, _, key, value in document["tail"]}
        receipts = [json.loads(value) for key, value in found.items() if value and json.loads(key)[0] == "receipt"]
        return Counter(receipt["engine"] for receipt in receipts)

    def _documents(self, topic: str) -> Iterator[dict[str, Any]]:
        """Every document of an index, whoever wrote it."""
        if httpx.head(f"{self.server.url}/{topic}", timeout=120).status_code == 404:
            return
        self.ask("POST", f"{topic}/_refresh")
        answer = self.ask("POST", f"{topic}/_search", {"size": PAGE, "sort": ["_doc"]}, scroll="5m")
        while hits := answer["hits"]["hits"]:
            assert not answer["_shards"]["failed"], answer["_shards"]
            yield from (hit["_source"] for hit in hits)
            answer = self.ask("POST", "_search/scroll", {"scroll": "5m", "scroll_id": answer["_scroll_id"]})


def _record(document: dict[str, Any]) -> Record:
    about = document.pop("kafka", {})
    key = about["key"].encode() if "key" in about else b64decode(about["key64"]) if "key64" in about else None
    value: bytes | None = json.dumps(document).encode()
    if "value" in about:
        value = b64decode(about["value"])
    elif about.get("tombstone"):
        value = None
    headers = tuple((one["name"], _content(one)) for one in about.get("headers", ()))
    return Record(key, value, headers, int(about.get("timestamp", -1)))


def _content(header: dict[str, str]) -> bytes | None:
    if "value64" in header:
        return b64decode(header["value64"])
    return header["value"].encode() if "value" in header else None


class Hammer:
    """Writes large documents to an index of its own, with many requests at a time, until it is closed."""

    def __init__(self, side: SearchSide, index: str, at_once: int = 12) -> None:
        self._side, self._index, self._over = side, index, threading.Event()
        line = json.dumps({"text": "x" * 20_000})
        self._body = "".join(f'{{"index":{{}}}}\n{line}\n' for _ in range(200)).encode()
        self.refused = 0  # requests with a 429, or with one for a part of them
        self._threads = [threading.Thread(target=self._write, daemon=True) for _ in range(at_once)]
        for thread in self._threads:
            thread.start()

    def _write(self) -> None:
        headers = {"content-type": "application/json"}
        while not self._over.is_set():
            url = f"{self._side.server.url}/{self._index}/_bulk"
            answer = httpx.post(url, content=self._body, headers=headers, timeout=120)
            self.refused += answer.status_code == 429 or b'"status":429' in answer.content

    def close(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._side.delete(self._index)


def start(folder: Path, until_the_end: ExitStack) -> SearchSide:
    """Start a node in this folder, with its proxy."""
    server = OpenSearchServer("opensearch", folder, BUSY_SOON)
    server.start()
    until_the_end.callback(server.kill)
    proxy = Proxy(server.url)
    return SearchSide(server, proxy, until_the_end.enter_context(running(proxy)))
