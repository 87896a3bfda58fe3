"""Looks at what stands in an index, whoever wrote it. Documents are searched after a refresh, as their readers do.

A record's place is its source offset. Documents of others have no place: they get the offsets behind our last record,
in every partition, because an index has none. What an attempt of ours has written and not committed is not shown: the
next one writes it again, or deletes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from kafka_replication.ledger.entries import FailedRecord
from kafka_replication.ledger.placement import Part
from kafka_replication.model.errors import GapFound, NotReady, ReplicationError, Unexpected
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.model.targets import LATEST, RECORDS, Shape
from kafka_replication.opensearch.client import SEE, Answer, Client, path
from kafka_replication.opensearch.documents import FIELD, Origin, decoded, sources
from kafka_replication.opensearch.indexes import Indexes
from kafka_replication.opensearch.journal import hits, refresh
from kafka_replication.opensearch.quarantine import OpenSearchQuarantine
from kafka_replication.sinks.port import Record, digest_of
from kafka_replication.targets.journal import JournalLedger, Writer, Writers
from kafka_replication.targets.port import Failures
from kafka_replication.targets.unhidden import ContentReader, UnhiddenStanding
from kafka_replication.verification.digest import BatchDigest
from kafka_replication.verification.digests import Digest
from kafka_replication.verification.verify import PartDigest

FIRST_PAGE, LONGEST_PAGE = 100, 5_000  # documents that one search returns
PAGE_BYTES = 4 << 20
MOST_FOREIGN = 1_000  # documents of others that are shown one by one
MOST_RANGES = 1_000  # in one query, which may have 1,024 conditions
Query = dict[str, Any]


def ours(origin: Origin) -> list[Query]:
    """The conditions of documents that were written for this origin."""
    return [
        {"term": {f"{FIELD}.replication": origin.replication}},
        {"term": {f"{FIELD}.generation": origin.generation}},
        {"term": {f"{FIELD}.topic": origin.source.topic}},
        {"term": {f"{FIELD}.partition": origin.source.partition}},
    ]


def in_range(wanted: OffsetRange) -> Query:
    return {"range": {f"{FIELD}.offset": {"gte": wanted.from_, "lt": wanted.until}}}


def within(ranges: Iterable[OffsetRange]) -> Query:
    """Documents in any of these ranges; of very many, in the range that they span."""
    some = list(ranges)
    if len(some) > MOST_RANGES:
        some = [OffsetRange(some[0].from_, some[-1].until)]
    return {"bool": {"should": [in_range(one) for one in some], "minimum_should_match": 1}} if some else NOTHING


NOTHING: Query = {"match_none": {}}


def foreign(replication: str, generation: int) -> Query:
    """Documents that this generation of the replication has not written."""
    mine = [{"term": {f"{FIELD}.replication": replication}}, {"term": {f"{FIELD}.generation": generation}}]
    return {"bool": {"must_not": [{"bool": {"filter": mine}}]}}


def count(client: Client, index: str, query: Query) -> int:
    try:
        found = client.json("POST", path(index, "_count"), {"query": query})
    except Answer as answer:
        raise client.refused(answer) from answer
    if found["_shards"]["failed"]:
        raise NotReady(f"a part of {index} on the target does not answer", "check the cluster's health; run again")
    return int(found["count"])


def documents(client: Client, index: str, query: Query) -> Iterator[tuple[str, bytes]]:
    """The id and the text of our documents that a search finds, by their offsets, which differ."""
    size, after = FIRST_PAGE, -1
    while True:
        past = {"bool": {"filter": [query, {"range": {f"{FIELD}.offset": {"gt": after}}}]}}
        body: Query = {"query": past, "sort": [{f"{FIELD}.offset": "asc"}], "size": size, "track_total_hits": False}
        here = page(client, index, body)
        yield from here.documents
        if len(here.documents) < size:
            return
        size, after = here.size(size), here.last


class Page(NamedTuple):
    """The documents of the answer to a search, its length, and the place of the last one, if the search sorts."""

    documents: list[tuple[str, bytes]]
    length: int
    last: int

    def size(self, asked: int) -> int:
        """The number of documents to ask for next."""
        return min(LONGEST_PAGE, max(1, asked * PAGE_BYTES // self.length))


def page(client: Client, index: str, body: Query) -> Page:
    """The answer to a search. Raises GapFound, NotReady, Unexpected."""
    try:
        answer = client.text("POST", path(index, "_search"), json.dumps(body).encode())
    except Answer as error:
        if error.status == 404:
            raise GapFound(f"{index} on the target is gone", "restore it") from error
        raise client.refused(error) from error
    try:
        found, rest = sources(answer)
        is_whole = rest["timed_out"] is False and rest["_shards"]["failed"] == 0
        last = int(rest["hits"]["hits"][0]["sort"][0]) if found and "sort" in body else -1
    except (ValueError, LookupError, TypeError):  # which would show what is in the documents
        raise Unexpected(f"{client.name} answers a search of {index} in a form that is not known", SEE) from None
    if not is_whole:
        raise NotReady(f"a part of {index} on the target does not answer", "check the cluster's health; run again")
    return Page(found, len(answer), last)


class OpenSearchStanding(UnhiddenStanding):
    """A `Standing`."""

    def __init__(self, client: Client, ledger: JournalLedger, shape: Shape = RECORDS) -> None:
        self._client, self._ledger, self._shape = client, ledger, shape

    def ends_of(self, index: str, partitions: Iterable[int], writers: Writers) -> dict[int, int]:
        """The end of each partition of an existing index."""
        refresh(self._client, index)
        return {number: self._place(TopicPartition(index, number), writers).end for number in partitions}

    def _place(self, at: TopicPartition, writers: Writers) -> Place:
        return Place(self._client, at, writers.get(at), newest=self._shape == LATEST)

    def ends(self, wanted: Iterable[TopicPartition]) -> tuple[dict[TopicPartition, int], Failures]:
        ends, failed = dict[TopicPartition, int](), dict[TopicPartition, ReplicationError]()
        by_index: dict[str, set[int]] = {}
        try:
            writers = self._ledger.writers()
        except ReplicationError as error:
            return {}, dict.fromkeys(wanted, error)
        for at in wanted:
            by_index.setdefault(at.topic, set()).add(at.partition)
        for index, numbers in by_index.items():
            try:
                found = self.ends_of(index, sorted(numbers), writers)
            except ReplicationError as error:
                failed |= dict.fromkeys((TopicPartition(index, number) for number in numbers), error)
                continue
            ends |= {TopicPartition(index, number): end for number, end in found.items()}
        return ends, failed

    def first_record(self, at: TopicPartition, wanted: OffsetRange) -> int | None:
        refresh(self._client, at.topic)
        return self._place(at, self._ledger.writers()).first(wanted)

    def reader(self, at: TopicPartition) -> AbstractContextManager[ContentReader]:
        refresh(self._client, at.topic)
        return nullcontext(ContentReader(self._place(at, self._ledger.writers()).content))


class Place:
    """One partition of an index, as it was refreshed last. With the ``newest`` record of each key alone, places of
    superseded ones are empty, and documents of others are all that `content` gives: the rest is found by its keys.
    """

    def __init__(self, client: Client, at: TopicPartition, writer: Writer | None, *, newest: bool = False) -> None:
        self._client, self._at, self._newest_until = client, at, None
        self._committed = self._highest = NOTHING
        self._foreign: Query = {"match_all": {}}
        if writer is not None:  # without a position nothing there is ours
            key, position = writer
            self._newest_until = position.target_end if newest else None
            self._foreign = foreign(key.replication, position.generation)
            mine = ours(Origin.of(key, position.generation))
            # What an attempt wrote that died may have replaced what was committed: then that is as new.
            below = {"range": {f"{FIELD}.offset": {"lt": position.target_end}}}
            self._committed = {"bool": {"filter": [*mine, below if newest else within(position.coverage)]}}
            self._highest = {"bool": {"filter": mine}} if newest else self._committed

    @property
    def own_end(self) -> int:
        """One past our highest committed offset."""
        body = {"query": self._highest, "sort": [{f"{FIELD}.offset": "desc"}], "size": 1}
        found = hits(self._client, body, self._at.topic)
        end = int(found[0]["sort"][0]) + 1 if found else 0
        return end if self._newest_until is None else min(end, self._newest_until)

    @property
    def end(self) -> int:
        """One past the last document."""
        return self.own_end + count(self._client, self._at.topic, self._foreign)

    def first(self, wanted: OffsetRange) -> int | None:
        query = {"bool": {"filter": [self._committed, in_range(wanted)]}}
        body = {"query": query, "sort": [{f"{FIELD}.offset": "asc"}], "size": 1}
        if found := hits(self._client, body, self._at.topic):
            return int(found[0]["sort"][0])
        from_ = max(self.own_end, wanted.from_)
        return from_ if from_ < min(self.end, wanted.until) else None

    def content(self, wanted: OffsetRange) -> Iterator[Record]:
        """Ours in their order, then those of others, whose content is the text of the document."""
        query = {"bool": {"filter": [self._committed, in_range(wanted)]}} if self._newest_until is None else NOTHING
        for id_, document in documents(self._client, self._at.topic, query):
            yield _decoded(id_, document)
        own_end = self.own_end
        if wanted.until <= own_end:
            return
        body = {"query": self._foreign, "size": MOST_FOREIGN}
        others = sorted(page(self._client, self._at.topic, body).documents)
        for number, (id_, document) in enumerate(others, own_end):
            if number in wanted:
                yield number, -1, id_.encode(), document, None


def _decoded(id_: str, document: bytes) -> Record:
    """The record; of a document that was changed so that it is none any more, its text."""
    try:
        return decoded(document)
    except (ValueError, KeyError, TypeError):
        return 0, -1, id_.encode(), document, None


class OpenSearchVerifier:
    """A `TargetReader`: what a search finds at the offsets of a receipt, each at the id that it has to have."""

    def __init__(self, client: Client, ledger: JournalLedger, key: PartitionKey) -> None:
        self._client, self._ledger, self._key = client, ledger, key
        self._origin: Origin | None = None

    def _opened(self) -> Origin:
        if self._origin is None:
            position = self._ledger.position(self._key)
            if position is not None:
                Indexes(self._client).check_ids(self._key, position.ids)
            refresh(self._client, self._key.target_topic)
            self._origin = Origin.of(self._key, position.generation if position else 0)
        return self._origin

    def refreshed(self) -> Origin:
        """The origin of what is read, once all that was acknowledged is visible."""
        known, origin = self._origin, self._opened()
        if known is not None:
            refresh(self._client, self._key.target_topic)
        return origin

    def read(self, part: Part, digest: Digest | None) -> PartDigest:
        origin, found = self._opened(), 0
        query = {"bool": {"filter": [*ours(origin), within(part.offsets)]}}
        if digest is None:
            return PartDigest(count(self._client, self._key.target_topic, query), "")
        for id_, document in documents(self._client, self._key.target_topic, query):
            offset, *fields = _decoded(id_, document)
            if id_ == origin.id(offset) and not isinstance(digest, BatchDigest):
                found += 1
                digest.add(*fields)
        return PartDigest(found, digest.hexdigest())

    def quarantined(self, failed: FailedRecord) -> bool:
        found = OpenSearchQuarantine(self._client).stored(self._key, failed)
        return found is not None and failed.digest in ("", digest_of(found))
