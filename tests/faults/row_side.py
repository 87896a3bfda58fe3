"""HBase as the side that faults are done to: one server, its gateway, and a proxy that the product goes through.

The judge reads it by itself: by the protocol's definition in the gateway's own jar, and nothing of the product's.
"""

from __future__ import annotations

import json
import signal
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stack.hbase_server import HBaseServer
from stack.ports import LOOPBACK, free_ports
from tests.faults.proxy import Proxy
from tests.support.checker import Record
from tests.support.hbase import HBaseGround, definition

LEDGER = "kafka-replication.ledger"
PAGE = 1_000
MASTER, GATEWAY = "master", "thrift"
Cells = dict[bytes, bytes]


@dataclass(frozen=True)
class Node:
    """One of the server's two processes."""

    server: HBaseServer
    which: str

    @property
    def log(self) -> Path:
        return self.server.folder / f"{self.which}.log"

    def kill(self) -> None:
        self.server.kill(self.which)

    def send(self, number: signal.Signals) -> None:
        if (process := self.server.process(self.which)) is not None:
            process.send(number)


@dataclass
class RowSide:
    server: HBaseServer
    proxy: Proxy
    port: int  # of the proxy
    target = {"type": "hbase"}  # noqa: RUF012 - in the replication's file

    @property
    def name(self) -> str:
        return self.server.name

    @property
    def ground(self) -> HBaseGround:
        return HBaseGround(self.server)

    @property
    def nodes(self) -> Sequence[Node]:
        return Node(self.server, GATEWAY), Node(self.server, MASTER)

    def connection(self, clients: Mapping[str, Any]) -> dict[str, Any]:
        """The settings that the product's client gets; ``clients`` are Kafka's."""
        return {"url": f"http://{LOOPBACK}:{self.port}"}

    def start(self) -> None:
        self.server.start()

    def heal(self) -> None:
        """Both processes run, and the proxy passes everything on."""
        self.proxy.behave()
        for node in self.nodes:
            node.send(signal.SIGCONT)
        self.server.start()

    def delete(self, topic: str) -> None:
        """A table, if it exists."""
        if self.ground.exists(topic):
            self.ground.delete(topic)

    def size(self, topic: str) -> int:
        """Rows; 0 if there is no such table."""
        return sum(1 for _ in self._rows(topic))

    def logs(self, topic: str) -> list[list[Record]]:
        """The records of each source partition, in the order of their offsets. Rows of others are in the first."""
        found: dict[int, list[tuple[int, Record]]] = {0: []}
        for _, cells in self._rows(topic):
            about = json.loads(cells.get(b"origin", b"{}"))
            if not about.get("gone"):
                offset = int.from_bytes(cells.get(b"offset", b"\xff"), signed=True)
                found.setdefault(int(about.get("partition", 0)), []).append((offset, _record(cells, about)))
        return [
            [record for _, record in sorted(found.get(number, []), key=lambda one: one[0])]
            for number in range(max(found) + 1)
        ]

    def engines(self, replication: str) -> Counter[str]:
        """How many chunks each engine has copied, as the receipts say."""
        found = dict[str, str]()  # the newest value of each key
        for row, cells in self._rows(LEDGER):
            kind, of, *_ = row.decode().split("\0")
            if of == replication and kind == "entry":
                _, _, _, key, value = json.loads(cells[b"entry"])
                found.setdefault(key, value)
            if of == replication and kind == "head":
                found |= {key: value for _, _, _, key, value in json.loads(cells[b"head"])["tail"]}
        receipts = [json.loads(value) for key, value in found.items() if value and json.loads(key)[0] == "receipt"]
        return Counter(receipt["engine"] for receipt in receipts)

    def _rows(self, table: str) -> Iterator[tuple[bytes, Cells]]:
        """Every row of a table, whoever wrote it."""
        if not self.ground.exists(table):
            return
        begin = b""
        while True:
            with self.ground.gateway() as client:
                page = client.getScannerResults(table.encode(), definition().TScan(startRow=begin, caching=PAGE), PAGE)
            for result in page:
                yield result.row, {cell.qualifier: cell.value for cell in result.columnValues}
            if len(page) < PAGE:
                return
            begin = page[-1].row + b"\0"


def _record(cells: Cells, about: Mapping[str, Any]) -> Record:
    absent = about.get("absent", ())
    headers = json.loads(cells.get(b"headers") or b"[]")
    return Record(
        None if "key" in absent else cells.get(b"key"),
        None if "value" in absent else cells.get(b"value"),
        tuple((name, None if content is None else b64decode(content)) for name, content in headers),
        int.from_bytes(cells.get(b"timestamp", b"\xff"), signed=True),
    )


def start(folder: Path, until_the_end: ExitStack) -> RowSide:
    """Start a server in this folder, with its proxy."""
    server = HBaseServer("hbase", folder)
    server.start()
    until_the_end.callback(server.stop)
    [port] = free_ports(1)
    return RowSide(server, until_the_end.enter_context(closing(Proxy(port, server.port, frames=False))), port)
