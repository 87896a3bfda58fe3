"""The places of records in a table: each is a row, whose cells have the number of the session as their timestamp."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from kafka_replication.hbase import quarantine
from kafka_replication.hbase.client import Client
from kafka_replication.hbase.keyed_rows import MOST_FOREIGN
from kafka_replication.hbase.puts import Item, Puts
from kafka_replication.hbase.rows import OVERHEAD, Origin, Rows, is_gone, offset_of
from kafka_replication.hbase.scans import Scans
from kafka_replication.hbase.standing import outside
from kafka_replication.hbase.tables import Tables
from kafka_replication.ledger.entries import FailedRecord, Ids, Position
from kafka_replication.model.failures import Failure, FailureKind
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.sinks.failure_budget import SetAside
from kafka_replication.sinks.port import Record, size_of
from kafka_replication.targets.chunk_places import OffsetPlaces
from kafka_replication.targets.idempotent import Leftover, refused

REMEDIES: Mapping[FailureKind, str] = {
    FailureKind.TOO_LARGE: (
        "let failures.too_large set it aside, or raise hbase.client.keyvalue.maxsize and that of the servers"
    )
}


class TableWrites:
    """The part of a `Places` that is the same for rows of both shapes."""

    remedies = REMEDIES

    def __init__(self, key: PartitionKey, client: Client, puts: Puts) -> None:
        self._key, self._puts = key, puts
        self._tables, self._scans = Tables(client), Scans(client, key.target_topic)
        self.open(None)

    @property
    def waited(self) -> float:
        return self._puts.resend.waited

    @property
    def sent_again(self) -> bool:
        return self._puts.sent_again

    def open(self, position: Position | None) -> None:
        self._origin = Origin.of(self._key, position.generation if position else 1)
        self._rows = Rows(self._origin)

    def check_ids(self, ids: Ids) -> None:
        self._tables.check_ids(self._key, ids)

    def quarantine(self, aside: SetAside, record: Record, failed: FailedRecord, number: int) -> FailedRecord:
        place = quarantine.place_of(aside.topic, self._key, aside.generation, failed.offset)
        placed = replace(failed, place=place)
        row, about = quarantine.row_of(self._key, place), json.dumps(quarantine.about(placed)).encode()
        put = Rows(replace(self._origin, generation=aside.generation)).put(record, number, row, failed=about)
        puts = replace(self._puts, table=aside.topic, resend=replace(self._puts.resend, where=aside.topic))
        failures = puts.write([Item(failed.offset, put, size_of(record) + OVERHEAD)])
        if puts.sent_again:  # another thread may set it as well
            self._puts.sent_again = True
        if failures:
            raise refused(self._key, failures, self.remedies)
        return placed


class TablePlaces(TableWrites):
    """A `Places`. A later session's rows stay because an earlier one's cells are older."""

    takes_back, by_epoch = True, False
    several = "the transform makes several records of it, and a row's key has only the offset"

    def open(self, position: Position | None) -> None:
        super().open(position)
        self._covered = tuple(position.coverage) if position else ()

    def not_committed(self, position: Position) -> set[Leftover]:
        spans = outside(self._tables, self._key.target_topic, self._origin, position.coverage)
        return {
            (offset_of(row), "")
            for span in spans
            for row, cells in self._scans.origins(span)
            if self._origin.owns(row, cells) and not is_gone(cells)
        }

    def leftover(self, record: Record) -> Leftover:
        return record[0], ""  # an offset has one place

    def of_chunk(self, *, digests: bool) -> OffsetPlaces:
        return OffsetPlaces(self._key.source.partition, digests=digests)

    def placed(self, record: Record, number: int) -> Item:
        return Item(record[0], self._rows.put(record, number), size_of(record) + OVERHEAD)

    def refusal(self, record: Record) -> Failure | None:
        """Any bytes are a row; which are too many, only HBase knows."""
        return None

    def write(self, records: Sequence[Item]) -> tuple[Failure, ...]:
        return self._puts.write(records)

    def remove(self, offsets: Collection[int], number: int) -> tuple[Failure, ...]:
        return self._puts.write([Item(offset, self._rows.removal(offset, number), OVERHEAD) for offset in offsets])

    def has(self, offset: int) -> bool:
        cells = self._scans.get(self._origin.key(offset))
        return self._origin.is_of(cells) and not is_gone(cells)

    def foreign(self, written: OffsetRange | None) -> int:
        ranges = [*self._covered, *([written] if written else ())]
        spans = outside(self._tables, self._key.target_topic, self._origin, ranges)
        return sum(1 for _ in islice(self._scans.foreign(spans, self._origin.owns), MOST_FOREIGN))
