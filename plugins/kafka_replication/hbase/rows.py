"""A record as a row, and back: byte for byte. Pure.

The key is partition, generation and source offset, each big-endian in a fixed width: a scan gives a partition's records
in their order. Every row has all columns, so that what a later session writes leaves nothing of an earlier one.
"""

from __future__ import annotations

import json
import struct
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from kafka_replication.copying.sink import Record
from kafka_replication.hbase.client import SYNC_WAL, thrift
from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition
from kafka_replication.targets import keyed

FAMILY: Final = b"k"
VALUE, KEY, HEADERS, TIMESTAMP, OFFSET, ORIGIN = b"value", b"key", b"headers", b"timestamp", b"offset", b"origin"
FAILED: Final = b"failed"  # in the quarantine
# The bits of a timestamp where the newest record of each key is kept: generation, offset, epoch.
_OFFSET_BITS, _EPOCH_BITS = 42, 14
MOST_GENERATION: Final = 126  # so that no timestamp is that by which HBase means now
MOST_OFFSET: Final = (1 << _OFFSET_BITS) - 1
MOST_EPOCH: Final = (1 << _EPOCH_BITS) - 1
EVER: Final = 2**63 - 1
OVERHEAD: Final = 200  # bytes of a row beside key, value and headers; for the size of requests
_KEY: Final = struct.Struct(">IIQ")
_LONG: Final = struct.Struct(">q")
Span = tuple[bytes, bytes]  # row keys, half-open; an empty one is an end of the table
Cells = dict[bytes, bytes]  # of one row, by qualifier


def row_key(partition: int, generation: int, offset: int) -> bytes:
    return _KEY.pack(partition, generation, offset)


def offset_of(row: bytes) -> int:
    """Raises ValueError for a row key that is none of ours."""
    if len(row) != _KEY.size:
        raise ValueError("no row key of ours")
    return int(_KEY.unpack(row)[2])


def partition_begins(partition: int) -> bytes:
    return struct.pack(">I", partition)


def stamp(generation: int, offset: int, epoch: int = 0) -> int:
    """A timestamp that is higher for each newer record of a key: of a later generation, or in the same one of a later
    offset. Of one and the same record that of a later epoch is higher.
    """
    return min(generation << _OFFSET_BITS + _EPOCH_BITS | offset << _EPOCH_BITS | epoch, EVER)


@dataclass(frozen=True, slots=True)
class Origin(keyed.Origin):
    """Of which replication, generation and source partition rows are, and in which partition of the table they lie."""

    partition: int

    @classmethod
    def of(cls, key: PartitionKey, generation: int) -> Origin:
        return cls(key.replication, generation, key.source, key.target.partition)

    def key(self, offset: int) -> bytes:
        return row_key(self.partition, self.generation, offset)

    def span(self, wanted: OffsetRange) -> Span:
        return self.key(wanted.from_), self.key(wanted.until)

    @property
    def about(self) -> dict[str, Any]:
        return {
            "replication": self.replication,
            "generation": self.generation,
            "topic": self.source.topic,
            "partition": self.source.partition,
        }

    @property
    def beginning(self) -> bytes:
        """The column of the origin in all its rows begins so; that of a partition with more digits may, too."""
        return _dumped(self.about)[:-1]

    def is_of(self, cells: Cells) -> bool:
        """True if this origin has written the row, which may be one that was taken away again."""
        about = _about(cells)
        return all(about.get(name) == value for name, value in self.about.items())

    def owns(self, row: bytes, cells: Cells) -> bool:
        """The same, at the place where it belongs."""
        return len(row) == _KEY.size and row == self.key(offset_of(row)) and self.is_of(cells)

    def outside(self, partitions: int, ranges: Iterable[OffsetRange]) -> Iterator[Span]:
        """The rest of this partition of the table, outside of these ranges of ours. All partitions together are the
        whole table, whatever row keys others have.
        """
        begin = partition_begins(self.partition) if self.partition else b""
        end = partition_begins(self.partition + 1) if self.partition + 1 < partitions else b""
        for one in sorted(ranges, key=lambda one: one.from_):
            if begin < self.key(one.from_):
                yield begin, self.key(one.from_)
            begin = max(begin, self.key(one.until))
        yield begin, end


class Rows:
    """Makes the rows of one origin."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._whole = _dumped(origin.about)

    def put(self, record: Record, number: int, row: bytes | None = None, **more: bytes) -> Any:
        """The request that writes a record's row with cells of the timestamp ``number``, which grows with the session:
        what an earlier session writes later is never the newest version. ``row`` is another key, ``more`` are more
        columns.
        """
        offset, timestamp, key, value, headers = record
        absent = [name for name, content in (("key", key), ("value", value)) if content is None]
        origin = _dumped({**self._origin.about, "absent": absent}) if absent else self._whole
        told = [[name, None if content is None else b64encode(content).decode()] for name, content in headers or ()]
        cells = {
            VALUE: value or b"",
            KEY: key or b"",
            HEADERS: _dumped(told) if told else b"",
            TIMESTAMP: _LONG.pack(timestamp),
            OFFSET: _LONG.pack(offset),
            ORIGIN: origin,
            **{name.encode(): content for name, content in more.items()},
        }
        return put(row or self._origin.key(offset), FAMILY, cells, number)

    def removal(self, offset: int, number: int) -> Any:
        """The request that takes a row away from readers. It is not deleted: what an earlier session writes later would
        be visible as soon as a compaction has dropped the mark of the deletion.
        """
        empty = dict.fromkeys((VALUE, KEY, HEADERS, TIMESTAMP, OFFSET), b"")
        gone = {**empty, ORIGIN: _dumped({**self._origin.about, "gone": True})}
        return put(self._origin.key(offset), FAMILY, gone, number)


def put(row: bytes, family: bytes, cells: Cells, number: int) -> Any:
    """Write these cells, all with the timestamp ``number``."""
    types = thrift()
    values = [
        types.TColumnValue(family=family, qualifier=name, value=content, timestamp=number)
        for name, content in cells.items()
    ]
    return types.TPut(row=row, columnValues=values, durability=SYNC_WAL)


def cells_of(result: Any, family: bytes = FAMILY) -> Cells:
    return {cell.qualifier: cell.value for cell in result.columnValues if cell.family == family}


def is_gone(cells: Cells) -> bool:
    """True for a row that was taken away from readers."""
    return bool(_about(cells).get("gone"))


def origin_of(cells: Cells, partition: int) -> Origin:
    """The origin of a row in this partition of the table. Raises ValueError if it is none of ours."""
    about = _about(cells)
    try:
        source = TopicPartition(str(about["topic"]), int(about["partition"]))
        return Origin(str(about["replication"]), int(about["generation"]), source, partition)
    except (KeyError, TypeError) as error:
        raise ValueError(f"no origin of ours: {error!r}") from error


def decoded(row: bytes, cells: Cells) -> Record:
    """The record of a row. Raises ValueError if the row is none of ours, or was changed so that it is none any more."""
    record = record_of(cells)
    if record[0] != offset_of(row):
        raise ValueError("its columns are of another row")
    return record


def record_of(cells: Cells) -> Record:
    """The record in the columns of a row, whatever its key is. Raises ValueError if they are none of ours."""
    about = _about(cells)
    absent = about.get("absent", ())
    try:
        if "replication" not in about:
            raise ValueError("no origin of ours")
        headers = json.loads(cells[HEADERS]) if cells[HEADERS] else []
        return (
            int(_LONG.unpack(cells[OFFSET])[0]),
            int(_LONG.unpack(cells[TIMESTAMP])[0]),
            None if "key" in absent else cells[KEY],
            None if "value" in absent else cells[VALUE],
            [(name, None if content is None else b64decode(content)) for name, content in headers] or None,
        )
    except (KeyError, TypeError, struct.error) as error:
        raise ValueError(f"a column is missing or has other bytes: {error!r}") from error


def _about(cells: Cells) -> dict[str, Any]:
    try:
        found = json.loads(cells.get(ORIGIN, b"{}"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _dumped(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
