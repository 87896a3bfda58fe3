"""HBase as the target of a replication: ``target: {type: hbase, connection: ...}``."""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

import xxhash

from kafka_replication.copying.sink import Record, size_of
from kafka_replication.hbase import client as clients
from kafka_replication.hbase.client import SEE, SYNC_WAL, THRIFT2, Answer, Client, thrift
from kafka_replication.hbase.records import KeyRecords, TableRecords
from kafka_replication.hbase.rows import FAILED, OVERHEAD, Cells, Origin, Rows, Span, decoded, offset_of, put, row_key
from kafka_replication.hbase.scans import Scans
from kafka_replication.hbase.tables import ID, READ_ONLY, Puts, Tables, id_of, partitions_of, problem_of
from kafka_replication.ledger.entries import Place, Position
from kafka_replication.model.choices import HBASE, LATEST, Failure, FailureKind
from kafka_replication.model.errors import GapFound, LedgerUnreadable, NotReady, Refused, ReplicationError, Unreachable
from kafka_replication.model.offsets import PartitionKey
from kafka_replication.model.rights import Login
from kafka_replication.model.trouble import Trouble
from kafka_replication.targets.journal import FORMAT, LEDGER_PLACE, Head, JournalStorage, LedgerRecord
from kafka_replication.targets.port import TargetSettings, ToCreate
from kafka_replication.targets.record_store import Aside, Description, Item, RecordStore, Resend, client_of
from kafka_replication.targets.stored_target import StoredTarget

TABLE: Final = LEDGER_PLACE
FAMILY: Final = b"l"
_FORMAT: Final = b"kafka-replication.ledger"  # in the table's description
_NUMBER, _HEAD, _TOKEN, _ENTRY = b"number", b"head", b"token", b"entry"
_LONG: Final = struct.Struct(">q")


class TableStorage(JournalStorage):
    def __init__(self, client: Client, replication: str) -> None:
        self.client, self.replication = client, replication
        self.tables, self._scans = Tables(client), Scans(client, TABLE, FAMILY)

    def ledger_exists(self) -> bool:
        there = self.tables.described(TABLE)
        if there is None:
            return False
        if (there.attributes or {}).get(_FORMAT) != b"%d" % FORMAT:
            raise Refused(
                f"the table {TABLE} on the target is no ledger of this version",
                "drop it if nobody needs it, or upgrade this installation",
            )
        return True

    def create_ledger(self) -> None:
        about = {_FORMAT: b"%d" % FORMAT, ID: uuid.uuid4().hex.encode()}
        self.tables.create(TABLE, {FAMILY: {}}, attributes=about)

    def obstacle(self) -> ReplicationError | None:
        there = self.tables.described(TABLE)
        if there is None:
            return None
        if not self.tables.is_enabled(TABLE):
            return NotReady(f"the ledger {TABLE} on the target is disabled", f"enable '{TABLE}' in HBase's shell")
        if (there.attributes or {}).get(READ_ONLY, b"").lower() == b"true":
            return NotReady(f"the ledger {TABLE} on the target is read only", f"alter '{TABLE}', READONLY => false")
        return None

    def check_writing(self) -> None:
        """Changes nothing. Raises NotReady, Refused."""
        if self.ledger_exists():
            if error := self.obstacle():
                raise error
            self.tables.check_writing(TABLE, FAMILY, _ENTRY)

    def head(self) -> Head:
        try:
            cells = self._scans.get(_row("head", self.replication))
        except GapFound:
            cells = {}
        return _head(cells) if cells else Head(replication=self.replication)

    def heads(self) -> list[Head]:
        return [_head(cells) for _, cells in self._scans.rows(_beginning(_row("head", "")))]

    def replace(self, before: Head, after: Head) -> bool:
        row, number = _row("head", self.replication), before.at or 0
        token = uuid.uuid4().hex.encode()
        cells = {_NUMBER: _LONG.pack(number + 1), _HEAD: json.dumps(after.as_json()).encode(), _TOKEN: token}
        expected = _LONG.pack(number) if before.at is not None else None
        if self._write("checkAndPut", row, FAMILY, _NUMBER, expected, put(row, FAMILY, cells, number + 1)):
            return True
        # The gateway repeats a call whose answer it has lost, and then finds its own number there.
        return self._scans.get(row).get(_TOKEN) == token

    def store(self, records: Sequence[LedgerRecord]) -> None:
        rows = [
            put(self._entry_row(record.place), FAMILY, {_ENTRY: json.dumps(record.as_json()).encode()}, _time(record))
            for record in records
        ]
        self._write("putMultiple", rows)

    def remove(self, records: Sequence[LedgerRecord]) -> None:
        """Cells with a later timestamp stay."""
        delete = thrift().TDelete
        rows = [delete(row=self._entry_row(one.place), timestamp=_time(one), durability=SYNC_WAL) for one in records]
        self._write("deleteMultiple", rows)

    def stored(self, place: tuple[str, int, str]) -> LedgerRecord | None:
        cells = self._scans.get(self._entry_row(place))
        return _record(cells) if cells else None

    def stored_since(self, replication: str, offset: int, topics: Iterable[str]) -> Iterator[LedgerRecord]:
        since = thrift().TTimeRange(minStamp=offset + 1, maxStamp=2**63 - 1)
        for topic in sorted(topics):
            for _, cells in self._scans.rows(_beginning(_row("entry", replication, topic, "")), timeRange=since):
                yield _record(cells)

    def _entry_row(self, place: tuple[str, int, str]) -> bytes:
        topic, partition, key = place
        return _row("entry", self.replication, topic, f"{partition:05}", key)

    def _write(self, method: str, *args: Any) -> Any:
        try:
            return self.client.call(method, TABLE.encode(), *args)
        except Answer as answer:
            if not self.tables.exists(TABLE):
                raise Refused(
                    f"the ledger {TABLE} does not exist on the target", "restore it, or run again"
                ) from answer
            raise self.tables.judged(TABLE, answer) from answer


def _row(*parts: str) -> bytes:
    """A row key. No part but the last can have a NUL."""
    return "\0".join(parts).encode()


def _beginning(start: bytes) -> Span:
    return start, start[:-1] + bytes([start[-1] + 1])


def _time(record: LedgerRecord) -> int:
    """The timestamp of an entry's cell."""
    return record.offset + 1


def _head(cells: Cells) -> Head:
    try:
        return Head.of(json.loads(cells[_HEAD]), _LONG.unpack(cells[_NUMBER])[0])
    except (KeyError, ValueError, struct.error) as error:
        raise LedgerUnreadable(
            f"a head in {TABLE} cannot be read: {type(error).__name__}", "find who changed it"
        ) from None  # which shows what is there


def _record(cells: Cells) -> LedgerRecord:
    try:
        return LedgerRecord.of_json(json.loads(cells[_ENTRY]))
    except (KeyError, ValueError, TypeError) as error:
        raise LedgerUnreadable(
            f"an entry in {TABLE} cannot be read: {type(error).__name__}", "find who changed it"
        ) from None  # which shows what is there


class HBaseStore(TableStorage, RecordStore):
    noun = "row"
    why_not_batches = "HBase stores rows, not Kafka's batches"
    remedies: ClassVar[Mapping[FailureKind, str]] = {
        FailureKind.TOO_LARGE: (
            "let failures.too_large set it aside, or raise hbase.client.keyvalue.maxsize and that of the servers"
        )
    }

    def __init__(self, settings: TargetSettings) -> None:
        super().__init__(client_of(Client, settings), settings.replication.name)
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
            problem = Trouble(
                "error", topic, f"{topic} on the target is disabled", f"enable '{topic}' in HBase's shell"
            )
            return replace(described, problem=problem, readable=False)
        try:
            self.tables.check_writing(topic)
        except Refused as error:
            return replace(described, problem=Trouble.of(error))
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
