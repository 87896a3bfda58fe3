"""A table of the shape ``latest``: a row for each key, whose cells have a timestamp (`stamp`) that grows.

The highest timestamp is what readers find, whoever writes it and when. Rows are not in the order of offsets, and HBase
has no index of those: it is asked for timestamps, and passes over the files that have none of them. A file may still
have a cell that a newer one has replaced, so what a scan finds is read once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

from kafka_replication.hbase.client import Client
from kafka_replication.hbase.protocol import thrift
from kafka_replication.hbase.rows import (
    EVER,
    FAMILY,
    MOST_OFFSET,
    OFFSET,
    ORIGIN,
    Cells,
    Origin,
    Span,
    origin_of,
    stamp,
)
from kafka_replication.hbase.scans import LONGEST_PAGE, Scans
from kafka_replication.model.offsets import OffsetRange

LONGEST_ROW: Final = 32_767  # bytes of a row key
MOST_FOREIGN: Final = 1_000  # rows of others that are counted and shown
ALL: Final[Span] = (b"", b"")
_ESCAPE: Final = b"\0"


def row_of(key: bytes) -> bytes:
    """The row key of a key: itself. An empty one, which HBase has not, and one that begins with a zero byte get one
    more zero byte in front. No two keys have the same.
    """
    return key if key and not key.startswith(_ESCAPE) else _ESCAPE + key


class KeyedRows:
    """The rows of such a table, as its readers find them."""

    def __init__(self, client: Client, table: str) -> None:
        self._scans = Scans(client, table)

    def ours(self, origin: Origin, wanted: OffsetRange, *, whole: bool = False) -> Iterator[tuple[int, bytes, Cells]]:
        """The offset, key and cells of the rows of an origin that have these offsets, in the order of their keys; with
        all columns, or with those alone that say where a record came from.
        """
        names = () if whole else (ORIGIN, OFFSET)
        begin, end = _first(origin, wanted.from_), _first(origin, min(wanted.until, MOST_OFFSET + 1))
        if begin >= end:
            return
        scanned = self._scans.origins(ALL, timeRange=_times(begin, end), filterString=_written_by(origin))
        # Rows of others are not read again: what is the newest of all, and of this time, the scan has found.
        for row, cells in self._read((row for row, cells in scanned if origin.is_of(cells)), *names):
            if origin.is_of(cells) and (offset := _offset(cells)) is not None and offset in wanted:
                yield offset, row, cells

    def foreign(self, replication: str, generation: int | None) -> Iterator[bytes]:
        """The keys of rows that this generation of the replication has not written. Their timestamps are not ours:
        times in milliseconds are below those of every generation.
        """
        for begin, end in _outside(generation):
            keys = self._scans.keys(ALL, timeRange=_times(begin, end)) if begin < end else iter(())
            for row, cells in self._read(keys, ORIGIN):
                if generation is None or not _is_of(cells, replication, generation):
                    yield row

    def at(self, keys: Sequence[bytes]) -> Iterator[tuple[bytes, Cells]]:
        """The cells at each of these keys where a row is."""
        wanted = {row_of(key): key for key in keys}
        return ((wanted[row], cells) for row, cells in self._read(iter(wanted)) if cells)

    def _read(self, rows: Iterator[bytes], *names: bytes) -> Iterator[tuple[bytes, Cells]]:
        """The cells of each of these rows, all or those with these names; none where there is no row."""
        while some := list(islice(rows, LONGEST_PAGE)):
            there = set[bytes]()
            for found in [self._scans.gets(some, *names)] if names else self._scans.large_gets(some):
                there |= found.keys()
                yield from found.items()
            yield from ((row, {}) for row in some if row not in there)


def _times(begin: int, end: int) -> Any:
    return thrift().TTimeRange(minStamp=begin, maxStamp=end)


def _written_by(origin: Origin) -> bytes:
    """A filter by which HBase leaves out most rows of other origins, so that they need not travel."""
    begins = origin.beginning.replace(b"'", b"''")
    return b"SingleColumnValueFilter('%s', '%s', =, 'binaryprefix:%s', true, true)" % (FAMILY, ORIGIN, begins)


def _first(origin: Origin, offset: int) -> int:
    """The first timestamp of this offset or a later one."""
    return stamp(origin.generation, offset) if offset <= MOST_OFFSET else stamp(origin.generation + 1, 0)


def _outside(generation: int | None) -> list[tuple[int, int]]:
    return [(0, EVER)] if generation is None else [(0, stamp(generation, 0)), (stamp(generation + 1, 0), EVER)]


def _offset(cells: Cells) -> int | None:
    return int.from_bytes(cells[OFFSET], signed=True) if OFFSET in cells else None


def _is_of(cells: Cells, replication: str, generation: int) -> bool:
    try:
        origin = origin_of(cells, 0)
    except ValueError:
        return False
    return (origin.replication, origin.generation) == (replication, generation)
