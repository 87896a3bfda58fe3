"""HBase as the target of a replication: ``target: {type: hbase, connection: ...}``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import xxhash

from kafka_replication.copying.sink import Record, size_of
from kafka_replication.hbase import client as clients
from kafka_replication.hbase.client import SEE, THRIFT2, Answer, Client
from kafka_replication.hbase.records import KeyRecords, TableRecords
from kafka_replication.hbase.rows import FAILED, OVERHEAD, Origin, Rows, decoded, offset_of, row_key
from kafka_replication.hbase.scans import Scans
from kafka_replication.hbase.shelf import TableShelf
from kafka_replication.hbase.tables import Puts, id_of, partitions_of, problem_of
from kafka_replication.ledger.entries import Place, Position
from kafka_replication.model.choices import HBASE, LATEST, Failure, FailureKind
from kafka_replication.model.errors import NotReady, Refused, Unreachable
from kafka_replication.model.offsets import PartitionKey
from kafka_replication.model.rights import Login
from kafka_replication.planning.snapshot import Problem
from kafka_replication.targets.port import TargetSettings, ToCreate
from kafka_replication.targets.record_store import Aside, Description, Item, RecordStore
from kafka_replication.targets.resend import Resend
from kafka_replication.targets.stored_target import StoredTarget


class HBaseStore(TableShelf, RecordStore):
    noun = "row"
    why_not_batches = "HBase stores rows, not Kafka's batches"
    remedies: ClassVar[Mapping[FailureKind, str]] = {
        FailureKind.TOO_LARGE: (
            "let failures.too_large set it aside, or raise hbase.client.keyvalue.maxsize and that of the servers"
        )
    }

    def __init__(self, settings: TargetSettings) -> None:
        client = (clients.shared if settings.shared else Client)(
            settings.connection, settings.replication.timeouts.request
        )
        super().__init__(client, settings.replication.name)
        self.settings = settings

    @property
    def login(self) -> Login:
        return Login(self.client.name, "User:anonymous")

    def check(self) -> None:
        if self.client.call("getThriftServerType") != THRIFT2:
            raise Refused(
                f"{self.client.name} is HBase's Thrift gateway of the first kind",
                f"start `hbase thrift2`, and name its port; {SEE}",
            )

    def cluster_id(self) -> str:
        try:
            return str(self.client.call("getClusterId"))
        except Answer as answer:
            raise NotReady(answer.what, "check the cluster's health; run again") from answer

    def describe(self, topic: str, *, whole: bool = False) -> Description | None:
        """HBase leaves copies to its file system, and tells nothing of them."""
        if (there := self.tables.described(topic)) is None:
            return None
        problem = problem_of(topic, there, self.settings.replication.target.shape)
        described = Description(
            id=id_of(there), partitions=partitions_of(there), problem=problem, readable=problem is None
        )
        if problem or not whole:
            return described
        if not self.tables.is_enabled(topic):
            problem = Problem(f"{topic} on the target is disabled", f"enable '{topic}' in HBase's shell")
            return replace(described, problem=problem, readable=False)
        try:
            self.tables.check_writing(topic)
        except Refused as error:
            return replace(described, problem=Problem.of(error))
        except Unreachable:  # a copy waits for what is busy
            pass
        return described

    def create(self, topic: ToCreate) -> None:
        self.tables.create_topic(topic.name, topic.partitions, topic.config, self.settings.replication.target.shape)

    def add_partitions(self, topic: str, partitions: int) -> None:
        self.tables.set_partitions(topic, partitions)

    def records(self, key: PartitionKey, position: Position | None) -> TableRecords:
        if self.settings.replication.target.shape == LATEST:
            return KeyRecords(key, position, self.client, self.settings.replication.target.partitioner)
        return TableRecords(key, position, self.client)

    def set_aside(self, aside: Aside, number: int, resend: Resend) -> tuple[Failure, ...]:
        """As a row in a table of ours, with one more column that says why."""
        rows, row = Rows(Origin.of(aside.key, aside.generation)), _row_aside(aside.key, aside.place)
        put = rows.put(aside.record, number, row, **{FAILED.decode(): json.dumps(aside.about).encode()})
        puts = Puts(client=self.client, table=aside.place.topic, resend=resend)
        return puts.write([Item(aside.place.offset, put, size_of(aside.record) + OVERHEAD)])

    def aside(self, key: PartitionKey, place: Place) -> Record | None:
        if not self.tables.exists(place.topic):
            return None
        row = _row_aside(key, place)
        try:
            return decoded(row, Scans(self.client, place.topic).get(row))
        except ValueError:  # it is not there, or somebody changed it
            return None

    def all_aside(self, key: PartitionKey, generation: int, first: Place) -> Iterator[tuple[int, dict[str, Any]]]:
        span = _row_aside(key, first), _row_aside(key, replace(first, offset=2**63 - 1))
        for row, cells in Scans(self.client, first.topic).large_rows(span):
            if Origin.of(key, generation).is_of(cells):
                yield offset_of(row), json.loads(cells[FAILED])


def _row_aside(key: PartitionKey, place: Place) -> bytes:
    """More of the key is in place of the generation, of which the partition is a digest: two keys may have the same."""
    return row_key(place.partition, xxhash.xxh3_64_intdigest(key.entry("quarantine")) & 0xFFFFFFFF, place.offset)


class HBaseTarget(StoredTarget):
    connection_type: ClassVar[str] = HBASE
    store_kind: ClassVar[type[RecordStore]] = HBaseStore
    checked = staticmethod(clients.checked)
