"""Records that were set aside: documents in an index of ours, with their bytes in base64. No field of them is searched
but those that say to which partition a record belongs.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import xxhash

from kafka_replication.ledger.entries import FailedRecord, Place
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.times import now
from kafka_replication.opensearch.client import Client, path
from kafka_replication.opensearch.documents import FIELD
from kafka_replication.opensearch.journal import PAGE, hits, refresh
from kafka_replication.sinks.port import Record, digest_of


def place_of(topic: str, key: PartitionKey, generation: int, offset: int) -> Place:
    """The place of a record in the index ``topic``: a partition of it for each key and generation, and the offset."""
    number = xxhash.xxh32_intdigest(key.entry("quarantine", generation))
    return Place(topic, number & 0x7FFFFFFF, offset)


def id_of(key: PartitionKey, place: Place) -> str:
    """With more of the key than the partition has: two keys of a large quarantine may have the same one."""
    return f"{xxhash.xxh3_128_hexdigest(key.entry('quarantine'))}-{place.partition}-{place.offset}"


def document(key: PartitionKey, generation: int, record: Record, failed: FailedRecord) -> bytes:
    """The document of a record that is set aside."""
    offset, timestamp, key_, value, headers = record
    assert failed.place is not None
    about = {
        "replication": key.replication,
        "generation": generation,
        "topic": str(key.source),
        "partition": failed.place.partition,
        "offset": offset,
        "timestamp": timestamp,
    }
    content = {
        "key": _text(key_),
        "value": _text(value),
        "headers": [[name, _text(content)] for name, content in headers or ()],
        "failed": asdict(replace(failed, place=None)),
        "time": now(),
    }
    return json.dumps({FIELD: about, "content": content}).encode()


def _text(content: bytes | None) -> str | None:
    return None if content is None else b64encode(content).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


class OpenSearchQuarantine:
    """A `Quarantine`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def records(self, topic: str, key: PartitionKey, generation: int) -> Iterator[tuple[FailedRecord, str]]:
        if self._client.found("GET", path(topic, "_settings")) is None:
            return
        refresh(self._client, topic)
        number, after = place_of(topic, key, generation, 0).partition, -1
        while True:
            conditions = [
                {"term": {f"{FIELD}.replication": key.replication}},
                {"term": {f"{FIELD}.topic": str(key.source)}},
                {"term": {f"{FIELD}.partition": number}},
                {"range": {f"{FIELD}.offset": {"gt": after}}},
            ]
            body = {"query": {"bool": {"filter": conditions}}, "sort": [{f"{FIELD}.offset": "asc"}], "size": PAGE}
            page = [dict(hit["_source"]) for hit in hits(self._client, body, topic)]
            for source in page:
                content, after = source["content"], int(source[FIELD]["offset"])
                place = Place(topic, number, after)
                yield FailedRecord(**{**content["failed"], "place": place}), content["time"]
            if len(page) < PAGE:
                return

    def original(self, key: PartitionKey, failed: FailedRecord) -> Record | None:
        found = self.stored(key, failed)
        return found if found is not None and digest_of(found) == failed.digest else None

    def stored(self, key: PartitionKey, failed: FailedRecord) -> Record | None:
        """The record at its place, whatever its content is; that of one that nobody could read is empty."""
        assert failed.place is not None
        found = self._client.found("GET", path(failed.place.topic, "_doc", id_of(key, failed.place)))
        if found is None or not found.get("found"):
            return None
        return _record(found["_source"])


def _record(source: dict[str, Any]) -> Record | None:
    """None for a document that somebody changed so that it is no record any more."""
    try:
        about, content = source[FIELD], source["content"]
        headers = [(name, _bytes(value)) for name, value in content["headers"]]
        key, value = _bytes(content["key"]), _bytes(content["value"])
        return int(about["offset"]), int(about["timestamp"]), key, value, headers or None
    except (KeyError, TypeError, ValueError):
        return None
