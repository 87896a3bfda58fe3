"""Records that were set aside in a folder: as they were, with one more header."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import asdict, replace

from kafka_replication.api import FailedRecord, PartitionKey, SinkRecord
from kafka_replication.api.targets import Place, digest_of, now
from tests.folder_target.journal import Journal

ABOUT = "kafka-replication.failed"


def partition_of(key: PartitionKey) -> int:
    """A partition of the quarantine for each key, so that source offsets can be the places there."""
    return zlib.crc32(str(key).encode())


def about(key: PartitionKey, generation: int, failed: FailedRecord) -> bytes:
    return json.dumps([str(key), generation, now(), asdict(replace(failed, place=None))]).encode()


class FolderQuarantine:
    """A `Quarantine`."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def records(self, topic: str, key: PartitionKey, generation: int) -> Iterator[tuple[FailedRecord, str]]:
        there, number = self._journal.now().topics.get(topic), partition_of(key)
        for record in (there.records.get(number, {}) if there else {}).values():
            owner, of, time, fields = json.loads(dict(record[4])[ABOUT])
            if (owner, of) == (str(key), generation):
                yield FailedRecord(**{**fields, "place": Place(topic, number, record[0])}), time

    def original(self, key: PartitionKey, failed: FailedRecord) -> SinkRecord | None:
        found = self.stored(key, failed)
        return found if found is not None and digest_of(found) == failed.digest else None

    def stored(self, key: PartitionKey, failed: FailedRecord) -> SinkRecord | None:
        assert failed.place is not None
        there = self._journal.now().topics.get(failed.place.topic)
        record = there.records.get(failed.place.partition, {}).get(failed.place.offset) if there else None
        return (*record[:4], record[4][:-1] or None) if record else None
