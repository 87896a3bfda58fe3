"""The places of records in a table of the shape ``latest``: at their keys."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import islice
from typing import Final

from kafka_replication.hbase.client import Client
from kafka_replication.hbase.keyed_rows import LONGEST_ROW, MOST_FOREIGN, KeyedRows, row_of
from kafka_replication.hbase.places import TableWrites
from kafka_replication.hbase.puts import Item, Puts
from kafka_replication.hbase.rows import MOST_EPOCH, MOST_GENERATION, MOST_OFFSET, OVERHEAD, stamp
from kafka_replication.ledger.entries import Position
from kafka_replication.model.errors import Refused
from kafka_replication.model.failures import Failure, FailureKind
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.sinks.port import Record, size_of
from kafka_replication.targets.chunk_places import NewestPlaces
from kafka_replication.targets.idempotent import Leftover
from kafka_replication.targets.keyed import NOT_A_ROW, KeyedPartition, NoPlace

MOST_HOLES: Final = 10  # that are asked for one by one


class KeyPlaces(TableWrites):
    """A `Places`. ``make`` gives the partition of the keys, once the table has to be there.

    Rows are written without a look at what is there: HBase shows the cells with the highest timestamp, whatever came
    last, and every row has all columns.
    """

    takes_back, by_epoch = False, True
    several = "the transform makes several records of it, and of one offset a key has only one"

    def __init__(self, key: PartitionKey, client: Client, puts: Puts, make: Callable[[], KeyedPartition]) -> None:
        self._make, self._there = make, KeyedRows(client, key.target_topic)
        super().__init__(key, client, puts)

    def open(self, position: Position | None) -> None:
        super().open(position)
        self._made: KeyedPartition | None = None

    def not_committed(self, position: Position) -> set[Leftover]:
        return {
            (offset, _place(row))
            for hole in _holes(position)
            for offset, row, _ in self._there.ours(self._origin, hole)
            if not any(offset in covered for covered in position.coverage)
        }

    def leftover(self, record: Record) -> Leftover:
        return record[0], _place(self._row(record))

    def of_chunk(self, *, digests: bool) -> NewestPlaces:
        return NewestPlaces(self._key.source.partition)

    def placed(self, record: Record, number: int) -> Item | Failure:
        if number > MOST_EPOCH:
            raise Refused(
                f"{self._key.replication}: more than {MOST_EPOCH:,} copiers died while they wrote, and HBase's"
                " timestamps, which have this number, end here",
                "copy it under another name (name) to another table (topics.rename)",
            )
        try:
            row = self._row(record)
        except NoPlace as error:
            return Failure(record[0], FailureKind.REFUSED, f"it cannot be a row: {error}", NOT_A_ROW)
        put = self._rows.put(record, stamp(self._origin.generation, record[0], number), row)
        return Item(record[0], put, size_of(record) + OVERHEAD)

    def _row(self, record: Record) -> bytes:
        if self._made is None:
            self._made = self._make()
        row = row_of(self._made.key(record))
        if len(row) > LONGEST_ROW:
            raise NoPlace(f"its key makes a row key of {len(row)} bytes, and {LONGEST_ROW} is the most")
        if self._origin.generation > MOST_GENERATION or record[0] > MOST_OFFSET:
            raise NoPlace(
                f"generation {self._origin.generation} or offset {record[0]} is too large for a timestamp:"
                f" {MOST_GENERATION} and {MOST_OFFSET} are the most"
            )
        return row

    def refusal(self, record: Record) -> Failure | None:
        """Of a record without a place; which have too many bytes, only HBase knows."""
        placed = self.placed(record, 0)
        return placed if isinstance(placed, Failure) else None

    def write(self, records: Sequence[Item]) -> tuple[Failure, ...]:
        return self._puts.write(records)

    def remove(self, offsets: Collection[int], number: int) -> tuple[Failure, ...]:
        assert not offsets, "nothing is taken back"
        return ()

    def has(self, offset: int) -> bool:
        as_new = self._there.ours(self._origin, OffsetRange(offset, MOST_OFFSET + 1))
        return next(as_new, None) is not None

    def foreign(self, written: OffsetRange | None) -> int:
        found = self._there.foreign(self._key.replication, self._origin.generation)
        return sum(1 for _ in islice(found, MOST_FOREIGN))


def _place(row: bytes) -> str:
    return row.decode("latin-1")


def _holes(position: Position) -> list[OffsetRange]:
    """The offsets that the position does not cover; of very many ranges the one that they span."""
    holes, at = list[OffsetRange](), 0
    for covered in position.coverage:
        if at < covered.from_:
            holes.append(OffsetRange(at, covered.from_))
        at = covered.until
    holes.append(OffsetRange(at, MOST_OFFSET + 1))
    return holes if len(holes) <= MOST_HOLES else [OffsetRange(holes[0].from_, MOST_OFFSET + 1)]
