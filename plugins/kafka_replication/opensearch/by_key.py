"""Reads back an index of the shape ``latest``: what is at the ids of keys, as searches find it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from kafka_replication.ledger.entries import FailedRecord
from kafka_replication.ledger.placement import Part
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.opensearch.client import Client
from kafka_replication.opensearch.documents import decoded, read
from kafka_replication.opensearch.shapes import id_of
from kafka_replication.opensearch.standing import (
    FIRST_PAGE,
    OpenSearchVerifier,
    documents,
    in_range,
    ours,
    page,
)
from kafka_replication.targets import keyed
from kafka_replication.verification.digest import record_digest
from kafka_replication.verification.digests import Digest
from kafka_replication.verification.matching import Sent
from kafka_replication.verification.newest import Found
from kafka_replication.verification.verify import PartDigest


class KeyVerifier:
    """A `KeyReader`, and a `TargetReader` of what such an index has at places: the quarantine."""

    def __init__(self, client: Client, records: OpenSearchVerifier, key: PartitionKey) -> None:
        self._client, self._records, self._key = client, records, key
        self._size = FIRST_PAGE

    def at_keys(self, keys: Sequence[bytes]) -> Mapping[bytes, Found]:
        origin, found = self._records.refreshed(), dict[bytes, Found]()
        wanted = {id_of(key): key for key in keys}
        left = list(wanted)
        while left:
            some, left = left[: self._size], left[self._size :]
            body = {"query": {"ids": {"values": some}}, "size": len(some), "track_total_hits": False}
            answer = page(self._client, self._key.target_topic, body)
            self._size = answer.size(self._size)
            for id_, document in answer.documents:
                found[wanted[id_]] = keyed.found(partial(read, document), origin)
        return found

    def still_newest(self, wanted: OffsetRange) -> Iterator[Sent]:
        origin = self._records.refreshed()
        query = {"bool": {"filter": [*ours(origin), in_range(wanted)]}}
        for id_, document in documents(self._client, self._key.target_topic, query):
            offset, timestamp, key, value, headers = decoded(document)
            if key is not None and id_of(key) == id_:
                yield Sent(offset, record_digest(timestamp, key, value, headers))

    def read(self, part: Part, digest: Digest | None) -> PartDigest:
        return self._records.read(part, digest)

    def quarantined(self, failed: FailedRecord) -> bool:
        return self._records.quarantined(failed)
