"""The places of records in a table of the shape ``latest``: at their keys."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Final

from kafka_replication.hbase.client import Answer, Client
from kafka_replication.hbase.keyed_rows import LONGEST_ROW, MOST_FOREIGN, KeyedRows, row_of
from kafka_replication.hbase.places import TableWrites
from kafka_replication.hbase.protocol import GREATER, thrift
from kafka_replication.hbase.puts import Item, Puts
from kafka_replication.hbase.rows import FAMILY, OVERHEAD, VERSION, cells_of
from kafka_replication.hbase.scans import gets
from kafka_replication.ledger.entries import Position
from kafka_replication.model.errors import Unreachable
from kafka_replication.model.failures import Failure, FailureKind
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.newest import MOST_OFFSET
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.sinks.port import Record, size_of
from kafka_replication.targets.chunk_places import NewestPlaces
from kafka_replication.targets.idempotent import Leftover
from kafka_replication.targets.keyed import NOT_A_ROW, KeyedPartition, NoPlace, version
from kafka_replication.targets.resend import Outcome

CALLS_AT_ONCE: Final = 4
NOW: Final = 2**63 - 1  # as a timestamp
MOST_HOLES: Final = 10  # that are asked for one by one
_version: Final = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class KeyPuts:
    """Writes each row only if its version is higher than that of the row which is there, in one step of HBase. So of
    equal versions the first one stays: a copier that was replaced cannot change what its successor has written.
    """

    puts: Puts

    def write(self, items: Sequence[Item]) -> tuple[Failure, ...]:
        """As `Puts.write`. Of several items of one row only the newest is written."""
        newest = dict[bytes, Item]()
        for one in items:
            before = newest.get(one.put.row)
            if before is None or before.offset < one.offset:
                newest[one.put.row] = one
        return self.puts.resend.write(list(newest.values()), self._once)

    def _once(self, batch: Sequence[Item]) -> Outcome[Item]:
        puts = self.puts
        wanted = gets([one.put.row for one in batch], FAMILY, VERSION)
        try:
            there = puts.client.call("getMultiple", puts.table.encode(), wanted, seconds=puts.seconds)
        except Answer as answer:
            return puts.later(batch, answer)
        except Unreachable as error:
            return Outcome(tuple(batch), error.what)
        before = {result.row: cells_of(result)[VERSION] for result in there if result.row}
        left = [one for one in batch if before.get(one.put.row, b"") < _version_of(one)]
        with ThreadPoolExecutor(CALLS_AT_ONCE, thread_name_prefix="rows") as pool:
            outcomes = list(pool.map(lambda one: self._one(one, is_new=one.put.row not in before), left))
        return Outcome(
            tuple(one for outcome in outcomes for one in outcome.again),
            next((outcome.why for outcome in outcomes if outcome.why), ""),
            tuple(failure for outcome in outcomes for failure in outcome.refused),
            any(outcome.blocked for outcome in outcomes),
        )

    def _one(self, item: Item, *, is_new: bool) -> Outcome[Item]:
        call, row, seconds = self.puts.client.call, item.put.row, self.puts.seconds
        place = (self.puts.table.encode(), row, FAMILY, VERSION)
        types = thrift()
        try:
            if not (is_new and call("checkAndPut", *place, None, item.put, seconds=seconds)):
                change = types.TRowMutations(row=row, mutations=[types.TMutation(put=item.put)])
                call("checkAndMutate", *place, GREATER, _version_of(item), change, seconds=seconds)
        except Answer as answer:
            return self.puts.judged([item], answer)
        except Unreachable as error:
            return Outcome((item,), error.what)
        return Outcome()  # or one as new is there


def _version_of(item: Item) -> bytes:
    return next(bytes(one.value) for one in item.put.columnValues if one.qualifier == VERSION)


class KeyPlaces(TableWrites):
    """A `Places`. ``make`` gives the partition of the keys, once the table has to be there."""

    takes_back = False
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
        try:
            row, newness = self._row(record), version(self._origin.generation, record[0])
            if newness == NOW:
                raise NoPlace("its version is the timestamp by which HBase means the time of now")
        except NoPlace as error:
            return Failure(record[0], FailureKind.REFUSED, f"it cannot be a row: {error}", NOT_A_ROW)
        put = self._rows.put(record, newness, row, version=_version.pack(newness))
        return Item(record[0], put, size_of(record) + OVERHEAD)

    def _row(self, record: Record) -> bytes:
        if self._made is None:
            self._made = self._make()
        row = row_of(self._made.key(record))
        if len(row) > LONGEST_ROW:
            raise NoPlace(f"its key makes a row key of {len(row)} bytes, and {LONGEST_ROW} is the most")
        return row

    def refusal(self, record: Record) -> Failure | None:
        """Of a record without a place; which have too many bytes, only HBase knows."""
        placed = self.placed(record, 0)
        return placed if isinstance(placed, Failure) else None

    def write(self, records: Sequence[Item]) -> tuple[Failure, ...]:
        return KeyPuts(self._puts).write(records)

    def remove(self, offsets: Collection[int], number: int) -> None:
        assert not offsets, "nothing is taken back"

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
