"""HBase as the ground of a conformance suite, and as others of its users see it: by the protocol's definition in the
gateway's own jar, without our code.
"""

from __future__ import annotations

import io
import json
import os
import struct
import uuid
import zipfile
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import thriftpy2
from thriftpy2.rpc import client_context

from kafka_replication.copying.sink import Record
from kafka_replication.hbase.client import Client
from kafka_replication.hbase.tables import ID, PARTITIONS, SHAPE
from kafka_replication.hbase.target import TABLE, HBaseTarget, TableStorage
from kafka_replication.model.choices import LATEST, RECORDS, Shape
from kafka_replication.runtime.deadline import NEVER, Deadline
from kafka_replication.targets.port import TargetKind, TargetSettings
from stack.artifacts import HBASE, jars
from stack.hbase_server import HBaseServer
from stack.ports import LOOPBACK
from tests.support.journal_ground import JournalGround, of_target

# Settings of a table, and their usual values: how many times the size of a flush a region's memory may have, and at how
# many files of a store it is not flushed before they are compacted.
ROOM = {b"hbase.hregion.memstore.block.multiplier": b"4", b"hbase.hstore.blockingStoreFiles": b"16"}


@cache
def definition(file: str = "thrift2/hbase.thrift") -> Any:
    """The types and the service of a gateway's own definition."""
    with zipfile.ZipFile(jars(HBASE) / "hbase-thrift-2.6.1.jar") as jar:
        text = jar.read(f"org/apache/hadoop/hbase/{file}").decode()
    return thriftpy2.load_fp(io.StringIO(text), f"gateways_own_{file.partition('/')[0]}_thrift")


class NewestRows(HBaseTarget):
    """The kind with ``shape: latest``."""

    def __init__(self, settings: TargetSettings, deadline: Deadline = NEVER) -> None:
        super().__init__(of_target(settings, shape=LATEST), deadline)


@dataclass
class HBaseGround(JournalGround):
    server: HBaseServer
    kind: TargetKind = HBaseTarget
    shape: Shape = RECORDS

    @classmethod
    def of(cls, server: HBaseServer, shape: Shape = RECORDS) -> HBaseGround:
        return cls(server, NewestRows if shape == LATEST else HBaseTarget, shape)

    @property
    def connection(self) -> Mapping[str, Any]:
        return {"url": f"http://{LOOPBACK}:{self.server.port}"}

    def go_away(self) -> None:
        self.server.kill("thrift")

    def come_back(self) -> None:
        self.server.start()

    @contextmanager
    def gateway(self) -> Iterator[Any]:
        service = definition().THBaseService
        with client_context(
            service, LOOPBACK, self.server.port, socket_timeout=300_000, connect_timeout=60_000
        ) as client:
            yield client

    def shelf(self, replication: str) -> TableStorage:
        return TableStorage(Client(self.connection, 60), replication)

    def exists(self, topic: str) -> bool:
        with self.gateway() as client:
            return bool(client.tableExists(_named(topic)))

    def create(self, topic: str, partitions: int = 1, ttl: int | None = None) -> None:
        about = {ID: uuid.uuid4().hex.encode(), PARTITIONS: b"%d" % partitions}
        if self.shape == LATEST:
            about[SHAPE] = LATEST.encode()
        self.create_bare(topic, b"k", ttl, about)

    def create_bare(
        self, topic: str, family: bytes = b"k", ttl: int | None = None, attributes: Mapping[bytes, bytes] | None = None
    ) -> None:
        types = definition()
        columns = [types.TColumnFamilyDescriptor(name=family, maxVersions=1, timeToLive=ttl)]
        with self.gateway() as client:
            client.createTable(
                types.TTableDescriptor(tableName=_named(topic), columns=columns, attributes=attributes), None
            )

    def delete(self, topic: str) -> None:
        with self.gateway() as client:
            client.disableTable(_named(topic))
            client.deleteTable(_named(topic))

    def forget_ledger(self) -> None:
        if self.exists(TABLE):
            self.delete(TABLE)

    def change(self, topic: str, changed: Callable[[Any], None]) -> None:
        """Change the description of the table."""
        with self.gateway() as client:
            there = client.getTableDescriptor(_named(topic))
            changed(there)
            client.modifyTable(there)

    def described(self, topic: str) -> Any:
        with self.gateway() as client:
            return client.getTableDescriptor(_named(topic))

    def enable(self, topic: str, enabled: bool) -> None:
        with self.gateway() as client:
            (client.enableTable if enabled else client.disableTable)(_named(topic))

    def keep_busy(self, topic: str, busy: bool) -> None:
        """With settings of the table: a region has room for nothing, and its memory is not written to a file."""

        def changed(there: Any) -> None:
            there.attributes.update({name: b"0" if busy else usual for name, usual in ROOM.items()})

        self.change(topic, changed)

    def limit(self, topic: str, size: int) -> None:
        self.change(topic, lambda there: there.attributes.update({b"hbase.server.keyvalue.maxsize": b"%d" % size}))

    def unlimit(self, topic: str) -> None:
        self.limit(topic, 10 << 20)

    def id_of(self, topic: str) -> str:
        with self.gateway() as client:
            return str(client.getTableDescriptor(_named(topic)).attributes[ID].decode())

    def write(self, topic: str, record: Record) -> None:
        """Behind all others of partition 0, and with a key that is none of ours."""
        self.put_cells(topic, bytes(4) + b"\xff" * 4 + os.urandom(4), {b"value": record[3] or b""})

    def overwrite(self, topic: str, record: Record) -> None:
        """Change a record where it stands."""
        [row] = [row for row, cells in self.rows(topic) if _offset(cells) == record[0]]
        self.put_cells(topic, row, {b"value": record[3] or b""})

    def put_cells(self, topic: str, row: bytes, cells: Mapping[bytes, bytes], timestamp: int | None = None) -> None:
        types = definition()
        values = [
            types.TColumnValue(family=b"k", qualifier=name, value=value, timestamp=timestamp)
            for name, value in cells.items()
        ]
        with self.gateway() as client:
            client.put(topic.encode(), types.TPut(row=row, columnValues=values))

    def timestamp(self, topic: str, row: bytes) -> int:
        """That of all cells of a row."""
        with self.gateway() as client:
            found = client.get(topic.encode(), definition().TGet(row=row))
        [timestamp] = {cell.timestamp for cell in found.columnValues}
        return int(timestamp)

    def remove(self, topic: str, row: bytes, timestamp: int | None = None) -> None:
        """Delete the cells of a row up to this timestamp; up to now without one."""
        with self.gateway() as client:
            client.deleteSingle(topic.encode(), definition().TDelete(row=row, timestamp=timestamp))

    def rows(self, topic: str, partition: int = 0) -> list[tuple[bytes, dict[bytes, bytes]]]:
        """The keys and cells of a partition's rows."""
        begin, end = struct.pack(">I", partition), struct.pack(">I", partition + 1)
        if self.shape == LATEST:  # in all partitions
            begin = end = b""
        scan = definition().TScan(startRow=begin, stopRow=end)
        with self.gateway() as client:
            found = client.getScannerResults(topic.encode(), scan, 100_000)
        return [(result.row, {cell.qualifier: cell.value for cell in result.columnValues}) for result in found]

    def visible(self, topic: str, partition: int = 0) -> list[tuple[int, Record]]:
        found = [cells for _, cells in self.rows(topic, partition) if not _origin(cells).get("gone")]
        if self.shape == LATEST:
            found = [cells for cells in found if _origin(cells).get("partition", partition) == partition]
            found.sort(key=lambda cells: (_offset(cells) < 0, _offset(cells)))
        return [(number if record[0] < 0 else record[0], record) for number, record in enumerate(map(_record, found))]


def _named(topic: str) -> Any:
    return definition().TTableName(qualifier=topic.encode())


def _origin(cells: Mapping[bytes, bytes]) -> dict[str, Any]:
    return dict(json.loads(cells.get(b"origin", b"{}")))


def _offset(cells: Mapping[bytes, bytes]) -> int:
    return int.from_bytes(cells[b"offset"], signed=True) if b"offset" in cells else -1


def _record(cells: Mapping[bytes, bytes]) -> Record:
    """The record of a row; of one of somebody else with the offset -1."""
    if b"offset" not in cells:
        return -1, -1, None, cells[b"value"], None
    absent = _origin(cells).get("absent", ())
    headers = json.loads(cells[b"headers"] or b"[]")
    return (
        _offset(cells),
        int.from_bytes(cells[b"timestamp"], signed=True),
        None if "key" in absent else cells[b"key"],
        None if "value" in absent else cells[b"value"],
        [(name, None if value is None else b64decode(value)) for name, value in headers] or None,
    )
