"""Reads back a table of the shape ``latest``: what is at the rows of keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from kafka_replication.hbase.client import Client
from kafka_replication.hbase.keyed_rows import KeyedRows, row_of
from kafka_replication.hbase.rows import Cells, Origin, origin_of, record_of
from kafka_replication.hbase.standing import HBaseVerifier
from kafka_replication.ledger.entries import FailedRecord
from kafka_replication.ledger.placement import Part
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.sinks.port import Record
from kafka_replication.targets import keyed
from kafka_replication.verification.digest import record_digest
from kafka_replication.verification.digests import Digest
from kafka_replication.verification.matching import Sent
from kafka_replication.verification.newest import Found
from kafka_replication.verification.verify import PartDigest


class KeyVerifier:
    """A `KeyReader`, and a `TargetReader` of what such a table has at places: the quarantine."""

    def __init__(self, client: Client, records: HBaseVerifier, key: PartitionKey) -> None:
        self._rows, self._records, self._key = KeyedRows(client, key.target_topic), records, key

    def at_keys(self, keys: Sequence[bytes]) -> Mapping[bytes, Found]:
        origin = self._records.origin
        return {key: keyed.found(partial(_read, cells, origin.partition), origin) for key, cells in self._rows.at(keys)}

    def still_newest(self, wanted: OffsetRange) -> Iterator[Sent]:
        there = list[Sent]()
        for offset, row, cells in self._rows.ours(self._records.origin, wanted, whole=True):
            try:
                record = record_of(cells)
            except ValueError:
                continue
            if record[2] is not None and row_of(record[2]) == row:
                there.append(Sent(offset, record_digest(*record[1:])))
        return iter(sorted(there, key=lambda sent: sent.offset))

    def read(self, part: Part, digest: Digest | None) -> PartDigest:
        return self._records.read(part, digest)

    def quarantined(self, failed: FailedRecord) -> bool:
        return self._records.quarantined(failed)


def _read(cells: Cells, partition: int) -> tuple[Origin, Record]:
    return origin_of(cells, partition), record_of(cells)
