"""Finds out before a run what the cluster would refuse, with requests that change nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from kafka_replication.model.errors import NotAuthorized, NotReady, Refused, ReplicationError
from kafka_replication.model.failures import Failure, FailureKind
from kafka_replication.model.harmless import field
from kafka_replication.model.offsets import TopicPartition
from kafka_replication.opensearch.client import SEE, Answer, Client, path
from kafka_replication.opensearch.documents import Documents, Origin, ValueForm
from kafka_replication.sinks.port import Record

NUMBERS: Final = frozenset(
    {"long", "integer", "short", "byte", "double", "float", "half_float", "scaled_float", "unsigned_long"}
)
TEXTS: Final = frozenset({"text", "keyword", "wildcard"})
_KINDS: Final = {str: "a text", dict: "an object", bool: "a boolean"}
DISK: Final = "cluster.routing.allocation.disk"


class Foresight:
    """Asks one cluster."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def cannot_write(self, index: str) -> ReplicationError | None:
        """The error with which a document would be refused in this index: missing rights. The document must go to an
        alias, so it is refused in any case, after the rights were looked at.
        """
        try:
            self._client.json("PUT", path(index, "_doc", "check"), {}, require_alias=True)
        except Answer:
            return None
        except NotAuthorized as error:
            return Refused(error.what, f"grant this login the right to write to {index} (indices:data/write/*); {SEE}")
        return Refused(f"{self._client.name} wrote a document that it had to refuse to {index}", SEE)

    def cannot_create(self, name: str) -> ReplicationError | None:
        """The error with which the index would not be created: missing rights, a block, or too little disk. An index
        without a shard is refused in any case, after these were looked at.
        """
        try:
            self._client.json("PUT", path(name), {"settings": {"index.number_of_shards": 0}})
        except Answer as answer:
            return self._full_disk(name) if "number_of_shards" in answer.reason else self._client.refused(answer)
        except NotAuthorized as error:
            grant = f"grant this login the right to create {name} (indices:admin/create), or create it"
            return Refused(error.what, f"{grant}; {SEE}")
        except NotReady as error:
            return error
        return Refused(f"{self._client.name} created {name} without a shard", SEE)

    def _full_disk(self, name: str) -> ReplicationError | None:
        """The error if no node has room for another shard. None also if this login may not ask for that."""
        try:
            asked = {"include_defaults": True, "flat_settings": True}
            settings = self._client.json("GET", "/_cluster/settings", **asked)
            rows = json.loads(self._client.text("GET", "/_cat/allocation", format="json", bytes="b"))
        except (ReplicationError, ValueError):
            return None
        found = {**settings.get("defaults", {}), **settings["persistent"], **settings["transient"]}
        nodes = [row for row in rows if row.get("disk.total")]
        full = [row["node"] for row in nodes if is_full(row, found)]
        if not nodes or len(full) < len(nodes):
            return None
        return NotReady(
            f"{name} would get no shard: {', '.join(sorted(full))} has less free disk space than"
            f" {DISK}.watermark.low ({found.get(f'{DISK}.watermark.low')}) wants",
            "free disk space; then run again",
        )

    def as_created(self, name: str) -> dict[str, Any] | None:
        """``settings`` (flat) and ``mappings`` that templates give an index of this name; None if that is not told."""
        try:
            found = self._client.json("POST", path("_index_template", "_simulate_index", name))
        except ReplicationError:
            return None
        template = found.get("template", {})
        return {"settings": _flat(template.get("settings", {})), "mappings": template.get("mappings", {})}

    def judge(self, there: Mapping[str, Any], form: ValueForm) -> Callable[[Record], Failure | None]:
        """Returns the failure of a record that an index with these ``settings`` and ``mappings`` certainly refuses."""
        documents = Documents(Origin("sample", 1, TopicPartition("sample", 0)), form)
        lenient = str(there["settings"].get("index.mapping.ignore_malformed", "false")) == "true"

        def judged(record: Record) -> Failure | None:
            if failure := documents.refusal(record):
                return failure
            if form == "base64" or record[3] is None:
                return None
            what = conflict(json.loads(record[3]), there["mappings"], lenient=lenient)
            return Failure(record[0], FailureKind.REFUSED, what, "mapper_parsing_exception") if what else None

        return judged


def conflict(document: Mapping[str, Any], mappings: Mapping[str, Any], *, lenient: bool = False) -> str | None:
    """Pure. The first field of the document that a mapping is certain to refuse, and why. ``lenient``: the index
    ignores values that it cannot parse. What is not sure, such as a date, is no conflict.
    """
    return next(_conflicts(document, mappings, "", "", lenient=lenient), None)


def _conflicts(
    document: Mapping[str, Any], mapping: Mapping[str, Any], prefix: str, inherited: str, *, lenient: bool
) -> Iterator[str]:
    if mapping.get("enabled") is False:  # it is stored without being looked at
        return
    dynamic = str(mapping.get("dynamic", inherited or "true")).lower()
    fields: Mapping[str, Any] = mapping.get("properties", {})
    for name, content in document.items():
        known = fields.get(name)
        if known is None:
            if dynamic == "strict" and "." not in name:
                yield f"the mapping has no field {field(prefix + name)}, and is strict"
            continue
        for value in content if isinstance(content, list) else [content]:
            if isinstance(value, dict) and ("properties" in known or known.get("type") in ("object", "nested")):
                yield from _conflicts(value, known, f"{prefix}{name}.", dynamic, lenient=lenient)
            elif why := _misfit(value, known, lenient=lenient):
                yield f"the field {field(prefix + name)} is {why}"


def _misfit(value: Any, known: Mapping[str, Any], *, lenient: bool) -> str | None:
    """The type of the field and of the value, if they cannot go together."""
    type_ = str(known.get("type", "object"))
    if value is None or isinstance(value, list):
        return None
    if str(known.get("ignore_malformed", lenient)).lower() == "true" and type_ not in TEXTS:
        return None
    if type_ in ("object", "nested") and "properties" in known:
        fits = isinstance(value, dict)
    elif type_ in NUMBERS:
        fits = _is_number(value)
    elif type_ == "boolean":
        fits = isinstance(value, bool) or value in ("true", "false", "")
    elif type_ in TEXTS:
        fits = not isinstance(value, dict)
    else:
        return None
    return None if fits else f"of type {type_}, and the record has {_KINDS.get(type(value), 'a number')}"


def _is_number(value: Any) -> bool:
    if isinstance(value, bool | dict):
        return False
    try:
        float(value)
    except ValueError:
        return bool(value == "")
    return True


def is_full(node: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Pure. True if a node, as ``_cat/allocation`` shows it, gets no new shard any more."""
    if str(settings.get(f"{DISK}.threshold_enabled", "true")) == "false":
        return False
    free, total = float(node["disk.avail"]), float(node["disk.total"])
    limit = str(settings.get(f"{DISK}.watermark.low", "85%"))
    if limit.endswith("%"):
        return free < total * (1 - float(limit[:-1]) / 100)
    for unit, size in (("pb", 50), ("tb", 40), ("gb", 30), ("mb", 20), ("kb", 10), ("b", 0)):
        if limit.endswith(unit):
            return free < float(limit.removesuffix(unit)) * (1 << size)
    return free < total * (1 - float(limit))


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings with the dots of their names."""
    found = dict[str, Any]()
    for name, value in settings.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found
