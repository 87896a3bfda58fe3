"""Records that were set aside: rows in a table of ours, with one more column that says why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import xxhash

from kafka_replication.hbase.client import Client
from kafka_replication.hbase.rows import FAILED, Origin, decoded, offset_of, row_key
from kafka_replication.hbase.scans import Scans
from kafka_replication.hbase.tables import Tables
from kafka_replication.ledger.entries import FailedRecord, Place
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.times import now
from kafka_replication.sinks.port import Record, digest_of


def place_of(topic: str, key: PartitionKey, generation: int, offset: int) -> Place:
    """The place of a record in the table ``topic``: a partition of it for each key and generation, and the offset."""
    number = xxhash.xxh32_intdigest(key.entry("quarantine", generation))
    return Place(topic, number & 0x7FFFFFFF, offset)


def about(failed: FailedRecord) -> dict[str, Any]:
    return {"failed": asdict(replace(failed, place=None)), "time": now()}


def row_of(key: PartitionKey, place: Place) -> bytes:
    """More of the key is in place of the generation, of which the partition is a digest: two keys may have the same."""
    return row_key(place.partition, xxhash.xxh3_64_intdigest(key.entry("quarantine")) & 0xFFFFFFFF, place.offset)


class HBaseQuarantine:
    """A `Quarantine`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def records(self, topic: str, key: PartitionKey, generation: int) -> Iterator[tuple[FailedRecord, str]]:
        if not Tables(self._client).exists(topic):
            return
        first, origin = place_of(topic, key, generation, 0), Origin.of(key, generation)
        end = replace(first, offset=2**63 - 1)
        for row, cells in Scans(self._client, topic).large_rows((row_of(key, first), row_of(key, end))):
            if origin.is_of(cells):
                found = json.loads(cells[FAILED])
                place = replace(first, offset=offset_of(row))
                yield FailedRecord(**{**found["failed"], "place": place}), found["time"]

    def original(self, key: PartitionKey, failed: FailedRecord) -> Record | None:
        found = self.stored(key, failed)
        return found if found is not None and digest_of(found) == failed.digest else None

    def stored(self, key: PartitionKey, failed: FailedRecord) -> Record | None:
        """The record at its place, whatever its content is; that of one that nobody could read is empty."""
        assert failed.place is not None
        if not Tables(self._client).exists(failed.place.topic):
            return None
        row = row_of(key, failed.place)
        try:
            return decoded(row, Scans(self._client, failed.place.topic).get(row))
        except ValueError:  # it is not there, or somebody changed it
            return None
