"""The records of a key in an index: each is a document, or the newest one of each key is.

Documents of others are shown with their text, in every partition, because an index has none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from kafka_replication.copying.sink import Record, digest_of
from kafka_replication.kafka.partitioner import partition_of_key
from kafka_replication.ledger.entries import Position
from kafka_replication.model.choices import Failure, KeyHash
from kafka_replication.model.offsets import OffsetRange, PartitionKey
from kafka_replication.opensearch.client import Client, path
from kafka_replication.opensearch.documents import (
    FIELD,
    Bulk,
    Documents,
    NoDocument,
    Origin,
    ValueForm,
    decoded,
    deletion,
    id_of,
    item,
    read,
)
from kafka_replication.opensearch.searches import (
    FIRST_PAGE,
    Query,
    all_hits,
    count,
    described,
    documents,
    foreign,
    hits,
    in_range,
    ours,
    page,
    partitions_of,
    refresh,
    within,
)
from kafka_replication.targets import keyed
from kafka_replication.targets.keyed import KeyedPartition, version
from kafka_replication.targets.record_store import MOST_FOREIGN, Item, Leftover, Records, Resend
from kafka_replication.verification.digests import record_digest
from kafka_replication.verification.matching import Sent
from kafka_replication.verification.newest import Found

MOST_ID_BYTES: Final = 512
AT_ONCE: Final = 10_000  # documents of which only the ids are asked for


class IndexRecords(Records):
    """Every record is a document, whose id has its offset and whose version is the number of the session."""

    several = "the transform makes several records of it, and a document's id has only the offset"

    def __init__(self, key: PartitionKey, position: Position | None, client: Client, form: ValueForm) -> None:
        super().__init__(key, position)
        self._client, self._index, self._origin = client, key.target_topic, Origin.of(key, self.generation)
        self._documents = Documents(self._origin, form)

    def item(self, record: Record, number: int) -> Item:
        return item(record[0], self._origin.id(record[0]), number, self._documents.encoded(record))

    def leftover(self, record: Record) -> Leftover:
        return record[0], self._origin.id(record[0])

    def write(self, items: Sequence[Item], resend: Resend) -> tuple[Failure, ...]:
        return Bulk(client=self._client, index=self._index, resend=resend, newest=not self.takes_back).write(items)

    def removal(self, offset: int, number: int) -> Item:
        return deletion(offset, self._origin.id(offset), number)

    def _uncommitted(self) -> Query:
        return {"bool": {"filter": ours(self._origin), "must_not": [within(self.coverage)]}}

    def uncommitted(self) -> set[Leftover]:
        by, only = f"{FIELD}.offset", [self._uncommitted()]
        there = all_hits(self._client, self._index, only, by, size=AT_ONCE, _source=False)
        return {(int(hit["sort"][0]), str(hit["_id"])) for hit in there}

    def has(self, offset: int) -> bool:
        there = self._client.found(path(self._index, "_doc", self._origin.id(offset)), _source=False)
        return bool(there and there.get("found"))

    def scan(self, ranges: Iterable[OffsetRange]) -> Iterator[tuple[Record, bool]]:
        """The text of a document that was changed so that it is no record any more is shown as one."""
        query: Query = {"bool": {"filter": [*ours(self._origin), within(ranges)]}}
        for id_, document in documents(self._client, self._index, query):
            try:
                record = decoded(document)
            except (ValueError, KeyError, TypeError):
                record = 0, -1, id_.encode(), document, None
            yield record, id_ == self._origin.id(record[0])

    def count(self, ranges: Iterable[OffsetRange]) -> int:
        return count(self._client, self._index, {"bool": {"filter": [*ours(self._origin), within(ranges)]}})

    def _at_end(self, order: str, *conditions: Query) -> int | None:
        """The first offset of ours in this order, ``asc`` or ``desc``, under these conditions."""
        query = {"bool": {"filter": [*ours(self._origin), *conditions]}}
        found = hits(self._client, {"query": query, "sort": [{f"{FIELD}.offset": order}], "size": 1}, self._index)
        return int(found[0]["sort"][0]) if found else None

    def end(self) -> int:
        last = self._at_end("desc", within(self.coverage))
        return 0 if last is None else last + 1

    def first(self, wanted: OffsetRange) -> int | None:
        return self._at_end("asc", within(self.coverage), in_range(wanted))

    def _foreign(self) -> Query:
        return foreign(self.key.replication, self.generation) if self.position else {"match_all": {}}

    def others(self, written: OffsetRange | None = None) -> Iterator[Record]:
        there = page(self._client, self._index, {"query": self._foreign(), "size": MOST_FOREIGN}).documents
        return ((-1, -1, id_.encode(), document, None) for id_, document in sorted(there))

    def foreign(self, written: OffsetRange | None = None) -> int:
        return count(self._client, self._index, self._foreign())


class KeyRecords(IndexRecords):
    """The document's id is the key, and its version tells how new the record is."""

    takes_back = False

    def __init__(
        self,
        key: PartitionKey,
        position: Position | None,
        client: Client,
        form: ValueForm,
        partitioner: KeyHash,
    ) -> None:
        super().__init__(key, position, client, form)
        self._partitioner, self._size = partitioner, FIRST_PAGE
        self._keys: KeyedPartition | None = None

    def item(self, record: Record, number: int) -> Item:  # the same for every session
        action = {"_id": self._id(record), "version": version(self.generation, record[0]), "version_type": "external"}
        lines = json.dumps({"index": action}).encode() + b"\n" + self._documents.encoded(record) + b"\n"
        return Item(record[0], lines, len(lines))

    def _id(self, record: Record) -> str:
        if self._keys is None:
            there = described(self._client, self._index)
            self._keys = KeyedPartition(
                number=self.key.source.partition,
                partitions=0 if there is None else partitions_of(there),
                partitioner=self._partitioner,
                partition_of=partition_of_key,
            )
        id_ = id_of(self._keys.key(record))
        if (size := len(id_.encode())) > MOST_ID_BYTES:
            raise NoDocument(f"its key makes an id of {size} bytes, and {MOST_ID_BYTES} is the most")
        return id_

    def leftover(self, record: Record) -> Leftover:
        """Also the digest, for a document that is not replaced: an equal version is refused, and counts as written."""
        return record[0], f"{self._id(record)} {digest_of(record)}"

    def uncommitted(self) -> set[Leftover]:
        there, found = documents(self._client, self._index, self._uncommitted()), set[Leftover]()
        for id_, document in there:
            record = keyed.found(partial(read, document), self._origin)
            found.add((record.offset, f"{id_} {record.digest.hex()}"))
        return found

    def has(self, offset: int) -> bool:
        refresh(self._client, self._index)
        as_new: Query = {"range": {f"{FIELD}.offset": {"gte": offset}}}
        return count(self._client, self._index, {"bool": {"filter": [*ours(self._origin), as_new]}}) > 0

    def end(self) -> int:
        """An attempt that died may have replaced what was committed: then that is as new."""
        last = self._at_end("desc")
        return 0 if last is None or not self.position else min(last + 1, self.position.target_end)

    def first(self, wanted: OffsetRange) -> int | None:
        end = self.position.target_end if self.position else 0
        return self._at_end("asc", in_range(wanted), {"range": {f"{FIELD}.offset": {"lt": end}}})

    def at_keys(self, keys: Sequence[bytes]) -> Mapping[bytes, Found]:
        wanted, found = {id_of(key): key for key in keys}, dict[bytes, Found]()
        left = list(wanted)
        while left:
            some, left = left[: self._size], left[self._size :]
            body = {"query": {"ids": {"values": some}}, "size": len(some), "track_total_hits": False}
            answer = page(self._client, self._index, body)
            self._size = answer.size(self._size)
            for id_, document in answer.documents:
                found[wanted[id_]] = keyed.found(partial(read, document), self._origin)
        return found

    def still_newest(self, wanted: OffsetRange) -> Iterator[Sent]:
        query = {"bool": {"filter": [*ours(self._origin), in_range(wanted)]}}
        for id_, document in documents(self._client, self._index, query):
            offset, timestamp, key, value, headers = decoded(document)
            if key is not None and id_of(key) == id_:
                yield Sent(offset, record_digest(timestamp, key, value, headers))
