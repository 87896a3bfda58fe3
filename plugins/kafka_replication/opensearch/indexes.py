"""Asks about single indexes, and judges whether they can be written to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kafka_replication.model.errors import Refused
from kafka_replication.model.targets import LATEST, RECORDS, Shape
from kafka_replication.opensearch.client import SEE, Client, path
from kafka_replication.opensearch.documents import ABOUT, FIELD, FIELDS, mapping
from kafka_replication.planning.snapshot import Problem

DURABILITY: Final = "index.translog.durability"
PIPELINES: Final = ("index.default_pipeline", "index.final_pipeline")


def described(client: Client, name: str) -> dict[str, Any] | None:
    """``settings`` (flat) and ``mappings`` of the index; None if there is none. Raises Refused for an alias and for
    a data stream.
    """
    there = client.found("GET", path(name), flat_settings=True)
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


def shape_of(there: Mapping[str, Any]) -> str:
    return str(there["mappings"].get("_meta", {}).get(ABOUT, {}).get("shape", RECORDS))


def problem_of(name: str, there: Mapping[str, Any], shape: Shape = RECORDS) -> Problem | None:
    """The reason why no record may be written to an index as it is; None if it may be."""
    settings, mappings = there["settings"], there["mappings"]
    if (made := shape_of(there)) != shape:
        return Problem(
            f"{name} was made for 'shape: {made}', not for 'shape: {shape}': documents of both cannot be told apart",
            "write to another index (topics.rename); one of your own, which has no documents yet, can be prepared: PUT"
            f" {path(name, '_mapping')} {json.dumps(mapping(partitions_of(there), shape))}",
        )
    for pipeline in PIPELINES:
        if settings.get(pipeline, "_none") != "_none":
            return Problem(
                f"{name} has an ingest pipeline ({pipeline}), which changes documents: what is stored would never be"
                " what was copied",
                f"set {pipeline} to _none, and change records by transform instead",
            )
    if settings.get(DURABILITY, "request") != "request":
        return Problem(
            f"{name} acknowledges documents before they are on a disk ({DURABILITY}): a node that dies loses them, also"
            " verified ones",
            f'PUT {path(name, "_settings")} {{"{DURABILITY}": "request"}}; or change the template that sets it',
        )
    if mappings.get("_routing", {}).get("required"):
        return Problem(f"{name} wants a routing for each document (_routing)", "create an index that does not")
    source = mappings.get("_source", {})
    if source.get("enabled") is False or source.get("includes") or source.get("excludes"):
        return Problem(f"{name} does not store whole documents (_source)", "create an index that does")
    missing = _missing_fields(mappings.get("properties", {}).get(FIELD, {}), shape)
    if missing:
        wanted = json.dumps({"properties": {FIELD: FIELDS}})
        return Problem(
            f"the mapping of {name} has no usable {FIELD}.{missing[0]}, by which records are found again",
            f"before anything is written there: PUT {path(name, '_mapping')} {wanted}",
        )
    return None


def _missing_fields(there: Mapping[str, Any], shape: Shape) -> list[str]:
    """The fields by which records are found again that are missing, or of another type."""
    properties = there.get("properties", {})
    needed = ("replication", "generation", "topic", "partition", "offset", *(["tombstone"] if shape == LATEST else []))
    return [name for name in needed if properties.get(name, {}).get("type") != FIELDS["properties"][name]["type"]]
