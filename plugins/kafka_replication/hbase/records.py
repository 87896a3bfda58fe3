"""The records of a key in a table: each is a row, or the newest one of each key is.

What stands there is told by the keys of rows. Rows of others are shown by their keys alone, in the partition in whose
part of the table they lie.

A table of the shape ``latest``: a row for each key, whose cells have a timestamp (`stamp`) that grows.

The highest timestamp is what readers find, whoever writes it and when. Rows are not in the order of offsets, and HBase
has no index of those: it is asked for timestamps, and passes over the files that have none of them. A file may still
have a cell that a newer one has replaced, so what a scan finds is read once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

from kafka_replication.copying.sink import Record, size_of
from kafka_replication.hbase.client import Client, thrift
from kafka_replication.hbase.rows import (
    EVER,
    FAMILY,
    MOST_EPOCH,
    MOST_GENERATION,
    MOST_OFFSET,
    OFFSET,
    ORIGIN,
    OVERHEAD,
    Cells,
    Origin,
    Rows,
    Span,
    decoded,
    is_gone,
    offset_of,
    origin_of,
    record_of,
    stamp,
)
from kafka_replication.hbase.scans import LONGEST_PAGE, Scans
from kafka_replication.hbase.tables import Puts, Tables, partitions_of
from kafka_replication.kafka.partitioner import partition_of_key
from kafka_replication.ledger.entries import Position
from kafka_replication.model.choices import Failure, KeyHash
from kafka_replication.model.errors import GapFound, Refused
from kafka_replication.model.offsets import OffsetRange, PartitionKey
from kafka_replication.targets import keyed
from kafka_replication.targets.keyed import KeyedPartition, NoPlace
from kafka_replication.targets.record_store import MOST_FOREIGN, Item, Leftover, Records, Resend
from kafka_replication.verification.digests import record_digest
from kafka_replication.verification.matching import Sent
from kafka_replication.verification.newest import Found

LONGEST_ROW: Final = 32_767  # bytes of a row key
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
        # HBase leaves out most rows of other origins, so that they need not travel.
        begins = FAMILY, ORIGIN, origin.beginning.replace(b"'", b"''")
        of_origin = b"SingleColumnValueFilter('%s', '%s', =, 'binaryprefix:%s', true, true)" % begins
        scanned = self._scans.origins(ALL, timeRange=_times(begin, end), filterString=of_origin)
        # Rows of others are not read again: what is the newest of all, and of this time, the scan has found.
        for row, cells in self._read((row for row, cells in scanned if origin.is_of(cells)), *names):
            if origin.is_of(cells) and (offset := _offset(cells)) is not None and offset in wanted:
                yield offset, row, cells

    def foreign(self, replication: str, generation: int | None) -> Iterator[bytes]:
        """The keys of rows that this generation of the replication has not written. Their timestamps are not ours:
        times in milliseconds are below those of every generation.
        """
        spans = [(0, EVER)]
        if generation is not None:
            spans = [(0, stamp(generation, 0)), (stamp(generation + 1, 0), EVER)]
        for begin, end in spans:
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


def _first(origin: Origin, offset: int) -> int:
    """The first timestamp of this offset or a later one."""
    return stamp(origin.generation, offset) if offset <= MOST_OFFSET else stamp(origin.generation + 1, 0)


def _offset(cells: Cells) -> int | None:
    return int.from_bytes(cells[OFFSET], signed=True) if OFFSET in cells else None


def _is_of(cells: Cells, replication: str, generation: int) -> bool:
    try:
        origin = origin_of(cells, 0)
    except ValueError:
        return False
    return (origin.replication, origin.generation) == (replication, generation)


MOST_HOLES: Final = 10  # that are asked for one by one


class TableRecords(Records):
    """Each record is a row, whose key has its offset and whose cells have the number of the session as their timestamp:
    a later session's rows stay because an earlier one's cells are older.
    """

    several = "the transform makes several records of it, and a row's key has only the offset"

    def __init__(self, key: PartitionKey, position: Position | None, client: Client) -> None:
        super().__init__(key, position)
        self._client, self._table = client, key.target_topic
        self._tables, self._scans = Tables(client), Scans(client, key.target_topic)
        self._origin = Origin.of(key, self.generation)
        self._rows = Rows(self._origin)

    def item(self, record: Record, number: int) -> Item:
        return Item(record[0], self._rows.put(record, number), size_of(record) + OVERHEAD)

    def refusal(self, record: Record) -> NoPlace | None:
        """Any bytes are a row; which are too many, only HBase knows."""
        return None

    def write(self, items: Sequence[Item], resend: Resend) -> tuple[Failure, ...]:
        return Puts(client=self._client, table=self._table, resend=resend).write(items)

    def removal(self, offset: int, number: int) -> Item:
        return Item(offset, self._rows.removal(offset, number), OVERHEAD)

    def uncommitted(self) -> set[Leftover]:
        return {
            (offset_of(row), "")
            for span in self._origin.outside(self._partitions(), self.coverage)
            for row, cells in self._scans.origins(span)
            if self._origin.owns(row, cells) and not is_gone(cells)
        }

    def _partitions(self) -> int:
        """Raises GapFound if there is no table."""
        if (there := self._tables.described(self._table)) is None:
            raise GapFound(f"{self._table} on the target is gone", "restore it")
        return partitions_of(there)

    def has(self, offset: int) -> bool:
        cells = self._scans.get(self._origin.key(offset))
        return self._origin.is_of(cells) and not is_gone(cells)

    def scan(self, ranges: Iterable[OffsetRange]) -> Iterator[tuple[Record, bool]]:
        """A row that is none of its records any more has -1."""
        for wanted in ranges:
            for row, cells in self._scans.large_rows(self._origin.span(wanted)):
                ours = self._origin.owns(row, cells)
                if ours and is_gone(cells):
                    continue
                try:
                    if not ours:
                        raise ValueError("of another origin")
                    yield decoded(row, cells), True
                except ValueError:
                    yield (-1, -1, row, b"".join(cells.values()), None), True

    def count(self, ranges: Iterable[OffsetRange]) -> int:
        spans = map(self._origin.span, ranges)
        return sum(not is_gone(cells) for span in spans for _, cells in self._scans.origins(span))

    def end(self) -> int:
        for covered in reversed(self.coverage.ranges):
            for row, cells in self._scans.origins(self._origin.span(covered), backwards=True):
                if self._origin.owns(row, cells) and not is_gone(cells):
                    return offset_of(row) + 1
        return 0

    def others(self, written: OffsetRange | None = None) -> Iterator[Record]:
        ranges = [*self.coverage, *([written] if written else ())]
        spans = self._origin.outside(self._partitions(), ranges)
        rows = self._scans.foreign(spans, self._origin.owns)
        return ((-1, -1, row, None, None) for row in islice(rows, MOST_FOREIGN))


class KeyRecords(TableRecords):
    """The newest record of each key is a row. Rows are written without a look at what is there: HBase shows the cells
    with the highest timestamp, whatever came last, and every row has all columns.
    """

    takes_back, by_epoch = False, True
    several = "the transform makes several records of it, and of one offset a key has only one"

    def __init__(self, key: PartitionKey, position: Position | None, client: Client, partitioner: KeyHash) -> None:
        super().__init__(key, position, client)
        self._partitioner, self._there = partitioner, KeyedRows(client, key.target_topic)
        self._keys: KeyedPartition | None = None

    def item(self, record: Record, number: int) -> Item:
        if number > MOST_EPOCH:
            raise Refused(
                f"{self.key.replication}: more than {MOST_EPOCH:,} copiers died while they wrote, and HBase's"
                " timestamps, which have this number, end here",
                "copy it under another name (name) to another table (topics.rename)",
            )
        put = self._rows.put(record, stamp(self.generation, record[0], number), self._row(record))
        return Item(record[0], put, size_of(record) + OVERHEAD)

    def _row(self, record: Record) -> bytes:
        if self._keys is None:
            partitions, number = self._partitions(), self.key.source.partition
            self._keys = KeyedPartition(
                number=number, partitions=partitions, partitioner=self._partitioner, partition_of=partition_of_key
            )
        row = row_of(self._keys.key(record))
        if len(row) > LONGEST_ROW:
            raise NoPlace(f"its key makes a row key of {len(row)} bytes, and {LONGEST_ROW} is the most")
        if self.generation > MOST_GENERATION or record[0] > MOST_OFFSET:
            raise NoPlace(
                f"generation {self.generation} or offset {record[0]} is too large for a timestamp:"
                f" {MOST_GENERATION} and {MOST_OFFSET} are the most"
            )
        return row

    def refusal(self, record: Record) -> NoPlace | None:
        """Of a record without a place; which have too many bytes, only HBase knows."""
        return Records.refusal(self, record)

    def leftover(self, record: Record) -> Leftover:
        return record[0], self._row(record).decode("latin-1")

    def uncommitted(self) -> set[Leftover]:
        """Between the offsets that are committed; of very many holes in the range that they span."""
        holes = self.coverage.missing_from(OffsetRange(0, MOST_OFFSET + 1))
        if len(holes) > MOST_HOLES:
            holes = (OffsetRange(holes[0].from_, MOST_OFFSET + 1),)
        return {
            (offset, row.decode("latin-1"))
            for hole in holes
            for offset, row, _ in self._there.ours(self._origin, hole)
            if offset not in self.coverage
        }

    def has(self, offset: int) -> bool:
        as_new = self._there.ours(self._origin, OffsetRange(offset, MOST_OFFSET + 1))
        return next(as_new, None) is not None

    def end(self) -> int:
        """An attempt that died may have replaced what was committed: then that is as new."""
        end = self.position.target_end if self.position else 0
        if end == 0 or self.has(end - 1):
            return end
        return max((offset + 1 for offset, _, _ in self._there.ours(self._origin, OffsetRange(0, end - 1))), default=0)

    def first(self, wanted: OffsetRange) -> int | None:
        until = min(wanted.until, self.position.target_end if self.position else 0)
        if wanted.from_ >= until:
            return None
        ours = self._there.ours(self._origin, OffsetRange(wanted.from_, until))
        return min((offset for offset, _, _ in ours), default=None)

    def others(self, written: OffsetRange | None = None) -> Iterator[Record]:
        generation = self.generation if self.position else None
        rows = self._there.foreign(self.key.replication, generation)
        return ((-1, -1, row, None, None) for row in islice(rows, MOST_FOREIGN))

    def at_keys(self, keys: Sequence[bytes]) -> Mapping[bytes, Found]:
        return {
            key: keyed.found(partial(_read, cells, self._origin), self._origin) for key, cells in self._there.at(keys)
        }

    def still_newest(self, wanted: OffsetRange) -> Iterator[Sent]:
        there = list[Sent]()
        for offset, row, cells in self._there.ours(self._origin, wanted, whole=True):
            try:
                record = record_of(cells)
            except ValueError:
                continue
            if record[2] is not None and row_of(record[2]) == row:
                there.append(Sent(offset, record_digest(*record[1:])))
        return iter(sorted(there, key=lambda sent: sent.offset))


def _read(cells: Cells, own: Origin) -> tuple[Origin, Record]:
    return origin_of(cells, own.partition), record_of(cells)
