"""The places of records in an index: each is a document, whose version is the number of the session that wrote it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from kafka_replication.ledger.entries import FailedRecord, Ids, Place, Position
from kafka_replication.model.failures import Failure
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.opensearch import quarantine
from kafka_replication.opensearch.bulk import Bulk, Item, deletion, item
from kafka_replication.opensearch.client import Client, path
from kafka_replication.opensearch.documents import FIELD, Documents, NoDocument, Origin, ValueForm, failure_of
from kafka_replication.opensearch.indexes import Indexes
from kafka_replication.opensearch.journal import hits, refresh
from kafka_replication.opensearch.standing import Query, count, foreign, ours, within
from kafka_replication.sinks.failure_budget import SetAside
from kafka_replication.sinks.port import Record
from kafka_replication.targets.idempotent import refused

PAGE = 10_000


class IndexPlaces:
    """A `Places`. A later session's documents stay because an earlier one's version is lower (``external_gte``)."""

    several = "the transform makes several records of it, and a document's id has only the offset"
    remedy = "correct the mapping of the index or the record (a transform can), or let failures.refused set it aside"

    def __init__(self, key: PartitionKey, client: Client, bulk: Bulk, form: ValueForm) -> None:
        self._key, self._client, self._bulk, self._form = key, client, bulk, form
        self._indexes = Indexes(client)
        self.open(None)

    @property
    def waited(self) -> float:
        return self._bulk.resend.waited

    def open(self, position: Position | None) -> None:
        origin = Origin.of(self._key, position.generation if position else 1)
        self._origin, self._documents = origin, Documents(origin, self._form)

    def check_ids(self, ids: Ids) -> None:
        self._indexes.check_ids(self._key, ids)

    def not_committed(self, position: Position) -> set[int]:
        refresh(self._client, self._key.target_topic)
        query: Query = {"bool": {"filter": ours(self._origin), "must_not": [within(position.coverage)]}}
        found, after = set[int](), -1
        while True:
            past = {"bool": {"filter": [query, {"range": {f"{FIELD}.offset": {"gt": after}}}]}}
            body = {"query": past, "sort": [{f"{FIELD}.offset": "asc"}], "size": PAGE, "_source": False}
            page = [int(hit["sort"][0]) for hit in hits(self._client, body, self._key.target_topic)]
            found.update(page)
            if len(page) < PAGE:
                return found
            after = page[-1]

    def placed(self, record: Record, number: int) -> Item | Failure:
        try:
            document = self._documents.encoded(record)
        except NoDocument as error:
            return failure_of(record, error)
        return item(record[0], self._origin.id(record[0]), number, document)

    def refusal(self, record: Record) -> Failure | None:
        return self._documents.refusal(record)

    def write(self, records: Sequence[Item]) -> tuple[Failure, ...]:
        return self._bulk.write(records)

    def remove(self, offsets: Collection[int], number: int) -> None:
        self._bulk.write([deletion(offset, self._origin.id(offset), number) for offset in offsets])

    def has(self, offset: int) -> bool:
        id_ = self._origin.id(offset)
        found = self._client.found("GET", path(self._key.target_topic, "_doc", id_), _source=False)
        return bool(found and found.get("found"))

    def foreign(self, written: OffsetRange | None) -> int:
        index = self._key.target_topic
        refresh(self._client, index)
        return count(self._client, index, foreign(self._key.replication, self._origin.generation))

    def quarantine(self, aside: SetAside, record: Record, failed: FailedRecord, number: int) -> FailedRecord:
        place: Place = quarantine.place_of(aside.topic, self._key, aside.generation, failed.offset)
        placed = replace(failed, place=place)
        document = quarantine.document(self._key, aside.generation, record, placed)
        bulk = replace(self._bulk, index=aside.topic, resend=replace(self._bulk.resend, where=aside.topic))
        if failures := bulk.write([item(failed.offset, quarantine.id_of(place), number, document)]):
            raise refused(self._key, failures, self.remedy)
        return placed
