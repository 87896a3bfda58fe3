"""The places of records in an index: each is a document, or the newest one of each key is (`shapes`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from kafka_replication.ledger.entries import FailedRecord, Ids, Place, Position
from kafka_replication.model.failures import Failure, FailureKind
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.opensearch import quarantine
from kafka_replication.opensearch.bulk import Bulk, Item, deletion, item
from kafka_replication.opensearch.client import Client, path
from kafka_replication.opensearch.documents import FIELD, Origin, failure_of, read
from kafka_replication.opensearch.indexes import Indexes
from kafka_replication.opensearch.journal import hits, refresh
from kafka_replication.opensearch.shapes import Making
from kafka_replication.opensearch.standing import Query, count, documents, foreign, ours, within
from kafka_replication.sinks.failure_budget import SetAside
from kafka_replication.sinks.port import Record, digest_of
from kafka_replication.targets import keyed
from kafka_replication.targets.chunk_places import ChunkPlaces
from kafka_replication.targets.idempotent import Leftover, refused
from kafka_replication.targets.keyed import NoPlace

PAGE = 10_000


REMEDIES: Mapping[FailureKind, str] = {
    FailureKind.REFUSED: (
        "correct the mapping of the index or the record (a transform can), or let failures.policy set it aside"
    ),
    FailureKind.TOO_LARGE: "let failures.too_large set it aside, or raise http.max_content_length of the cluster",
}


class IndexPlaces:
    """A `Places`. ``make`` is called with the origin of the records, once the index has to be there."""

    by_epoch = sent_again = False
    several = "the transform makes several records of it, and a document's id has only the offset"
    remedies = REMEDIES

    def __init__(self, key: PartitionKey, client: Client, bulk: Bulk, make: Callable[[Origin], Making]) -> None:
        self._key, self._client, self._bulk, self._make = key, client, bulk, make
        self._indexes = Indexes(client)
        self.open(None)

    @property
    def waited(self) -> float:
        return self._bulk.resend.waited

    def open(self, position: Position | None) -> None:
        self._origin = Origin.of(self._key, position.generation if position else 1)
        self._made: Making | None = None

    @property
    def _making(self) -> Making:
        if self._made is None:
            self._made = self._make(self._origin)
        return self._made

    @property
    def takes_back(self) -> bool:
        return self._making.takes_back

    def of_chunk(self, *, digests: bool) -> ChunkPlaces:
        return self._making.places(digests=digests)

    def check_ids(self, ids: Ids) -> None:
        self._indexes.check_ids(self._key, ids)

    def not_committed(self, position: Position) -> set[Leftover]:
        refresh(self._client, self._key.target_topic)
        query: Query = {"bool": {"filter": ours(self._origin), "must_not": [within(position.coverage)]}}
        return set(self._ids(query) if self.takes_back else self._contents(query))

    def _ids(self, query: Query) -> Iterator[Leftover]:
        after = -1
        while True:
            past = {"bool": {"filter": [query, {"range": {f"{FIELD}.offset": {"gt": after}}}]}}
            body = {"query": past, "sort": [{f"{FIELD}.offset": "asc"}], "size": PAGE, "_source": False}
            page = [(int(hit["sort"][0]), str(hit["_id"])) for hit in hits(self._client, body, self._key.target_topic)]
            yield from page
            if len(page) < PAGE:
                return
            after = page[-1][0]

    def _contents(self, query: Query) -> Iterator[Leftover]:
        """Also the digest, for a document that is not replaced: an equal version is refused, and counts as written."""
        for id_, document in documents(self._client, self._key.target_topic, query):
            found = keyed.found(partial(read, document), self._origin)
            yield found.offset, _place(id_, found.digest.hex())

    def leftover(self, record: Record) -> Leftover:
        id_ = self._making.id(record)
        return record[0], id_ if self.takes_back else _place(id_, digest_of(record))

    def placed(self, record: Record, number: int) -> Item | Failure:
        try:
            return self._making.item(record, number)
        except NoPlace as error:
            return failure_of(record, error)

    def refusal(self, record: Record) -> Failure | None:
        return self._making.refusal(record)

    def write(self, records: Sequence[Item]) -> tuple[Failure, ...]:
        return self._bulk.write(records)

    def remove(self, offsets: Collection[int], number: int) -> tuple[Failure, ...]:
        return self._bulk.write([deletion(offset, self._origin.id(offset), number) for offset in offsets])

    def has(self, offset: int) -> bool:
        index = self._key.target_topic
        if not self._making.takes_back:
            refresh(self._client, index)
            as_new: Query = {"range": {f"{FIELD}.offset": {"gte": offset}}}
            return count(self._client, index, {"bool": {"filter": [*ours(self._origin), as_new]}}) > 0
        found = self._client.found("GET", path(index, "_doc", self._origin.id(offset)), _source=False)
        return bool(found and found.get("found"))

    def foreign(self, written: OffsetRange | None) -> int:
        index = self._key.target_topic
        refresh(self._client, index)
        return count(self._client, index, foreign(self._key.replication, self._origin.generation))

    def quarantine(self, aside: SetAside, record: Record, failed: FailedRecord, number: int) -> FailedRecord:
        place: Place = quarantine.place_of(aside.topic, self._key, aside.generation, failed.offset)
        placed = replace(failed, place=place)
        document = quarantine.document(self._key, aside.generation, record, placed)
        resend = replace(self._bulk.resend, where=aside.topic)
        bulk = replace(self._bulk, index=aside.topic, resend=resend, newest=False)
        if failures := bulk.write([item(failed.offset, quarantine.id_of(self._key, place), number, document)]):
            raise refused(self._key, failures, self.remedies)
        return placed


def _place(id_: str, digest: str) -> str:
    """That of a record whose document cannot be replaced: another content is another record."""
    return f"{id_} {digest}"
