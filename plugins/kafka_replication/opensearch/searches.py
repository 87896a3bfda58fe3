"""Searches an index. Documents are found after a refresh, as their readers find them.

Asks about single indexes, and judges whether they can be written to.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kafka_replication.model.choices import LATEST, RECORDS, Shape
from kafka_replication.model.errors import GapFound, NotReady, Refused, Unexpected
from kafka_replication.model.offsets import OffsetRange
from kafka_replication.model.trouble import Trouble
from kafka_replication.opensearch.client import SEE, Answer, Client, path
from kafka_replication.opensearch.documents import ABOUT, FIELD, FIELDS, Origin, mapping, sources

FIRST_PAGE, LONGEST_PAGE = 100, 5_000  # documents that one search returns
PAGE_BYTES = 4 << 20
HITS = 1_000  # of one of the searches that together find all
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
    found = client.asked("POST", path(index, "_count"), {"query": query})
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


def refresh(client: Client, index: str) -> None:
    """Let searches see what was acknowledged."""
    client.asked("POST", path(index, "_refresh"))


def hits(client: Client, body: dict[str, Any], index: str) -> list[dict[str, Any]]:
    """The hits of a search. Raises NotReady if a part of the index did not answer."""
    found = client.asked("POST", path(index, "_search"), body)
    if found.get("timed_out") or found.get("_shards", {}).get("failed"):
        raise NotReady(f"a part of {index} on the target does not answer", "check the cluster's health; run again")
    return list(found["hits"]["hits"])


def all_hits(
    client: Client, index: str, conditions: Sequence[Query], by: str, after: int = -1, size: int = HITS, **more: Any
) -> Iterator[dict[str, Any]]:
    """Every hit of a search under these conditions, in the order of the number in the field ``by``, which differs, from
    above ``after`` on. ``more`` stands in each request, which asks for ``size`` of them.
    """
    while True:
        query = {"bool": {"filter": [*conditions, {"range": {by: {"gt": after}}}]}}
        found = hits(client, {"query": query, "sort": [{by: "asc"}], "size": size, **more}, index)
        yield from found
        if len(found) < size:
            return
        after = int(found[-1]["sort"][0])


DURABILITY: Final = "index.translog.durability"
PIPELINES: Final = ("index.default_pipeline", "index.final_pipeline")


def described(client: Client, name: str) -> dict[str, Any] | None:
    """``settings`` (flat) and ``mappings`` of the index; None if there is none. Raises Refused for an alias and for
    a data stream.
    """
    there = client.found(path(name), flat_settings=True)
    if there is None:
        return None
    if list(there) != [name]:
        raise _family(name, sorted(there))
    return dict(there[name])


def _family(name: str, indexes: Sequence[str]) -> Refused:
    """The reason why a record must not go to one of several indexes, of which others choose the one to write to."""
    if all(index.startswith(".ds-") for index in indexes):
        what = "is a data stream, in which no document can be replaced, such as one of a run that died"
        return Refused(f"{name} on the target {what}", f"write to an index itself; {SEE}")
    what = f"is an alias of {', '.join(indexes)}"
    why = "if it is moved to another index, a record that is written again is in both"
    return Refused(f"{name} on the target {what}: {why}", f"write to an index itself; {SEE}")


def partitions_of(there: Mapping[str, Any]) -> int:
    return int(there["mappings"].get("_meta", {}).get(ABOUT, {}).get("partitions", 1))


def problem_of(name: str, there: Mapping[str, Any], shape: Shape = RECORDS) -> Trouble | None:
    """The reason why no record may be written to an index as it is; None if it may be."""
    settings, mappings = there["settings"], there["mappings"]
    if (made := str(mappings.get("_meta", {}).get(ABOUT, {}).get("shape", RECORDS))) != shape:
        return Trouble(
            "error",
            name,
            f"{name} was made for 'shape: {made}', not for 'shape: {shape}': documents of both cannot be told apart",
            "write to another index (topics.rename); one of your own, which has no documents yet, can be prepared: PUT"
            f" {path(name, '_mapping')} {json.dumps(mapping(partitions_of(there), shape))}",
        )
    for pipeline in PIPELINES:
        if settings.get(pipeline, "_none") != "_none":
            return Trouble(
                "error",
                name,
                f"{name} has an ingest pipeline ({pipeline}), which changes documents: what is stored would never be"
                " what was copied",
                f"set {pipeline} to _none, and change records by transform instead",
            )
    if settings.get(DURABILITY, "request") != "request":
        return Trouble(
            "error",
            name,
            f"{name} acknowledges documents before they are on a disk ({DURABILITY}): a node that dies loses them, also"
            " verified ones",
            f'PUT {path(name, "_settings")} {{"{DURABILITY}": "request"}}; or change the template that sets it',
        )
    if mappings.get("_routing", {}).get("required"):
        return Trouble(
            "error", name, f"{name} wants a routing for each document (_routing)", "create an index that does not"
        )
    source = mappings.get("_source", {})
    if source.get("enabled") is False or source.get("includes") or source.get("excludes"):
        return Trouble("error", name, f"{name} does not store whole documents (_source)", "create an index that does")
    # The fields by which records are found again: one may be missing, or of another type.
    fields = mappings.get("properties", {}).get(FIELD, {}).get("properties", {})
    needed = ("replication", "generation", "topic", "partition", "offset", *(["tombstone"] if shape == LATEST else []))
    missing = [one for one in needed if fields.get(one, {}).get("type") != FIELDS["properties"][one]["type"]]
    if missing:
        wanted = json.dumps({"properties": {FIELD: FIELDS}})
        return Trouble(
            "error",
            name,
            f"the mapping of {name} has no usable {FIELD}.{missing[0]}, by which records are found again",
            f"before anything is written there: PUT {path(name, '_mapping')} {wanted}",
        )
    return None
