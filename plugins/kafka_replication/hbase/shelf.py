"""The ledger in a table. Each head is a row that is replaced only if its number is still the one that was read
(`checkAndPut`). Other entries are rows whose cells have the entry's number as their timestamp: an older one is
never the newest version, whenever it is written.
"""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from kafka_replication.hbase.client import SYNC_WAL, Answer, Client, thrift
from kafka_replication.hbase.rows import Cells, Span, put
from kafka_replication.hbase.scans import Scans
from kafka_replication.hbase.tables import ID, READ_ONLY, Tables
from kafka_replication.model.errors import GapFound, LedgerUnreadable, NotReady, Refused, ReplicationError
from kafka_replication.targets.journal import FORMAT, LEDGER_PLACE, Head, LedgerRecord, Shelf

TABLE: Final = LEDGER_PLACE
FAMILY: Final = b"l"
_FORMAT: Final = b"kafka-replication.ledger"  # in the table's description
_NUMBER, _HEAD, _TOKEN, _ENTRY = b"number", b"head", b"token", b"entry"
_LONG: Final = struct.Struct(">q")


class TableShelf(Shelf):
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
