"""Reads and writes ledger entries as JSON: an object with ``type``, ``format`` and the fields of the entry's class.

A format never changes its required fields. An optional field can be added at any time: a reader that does not know it
keeps it in ``extra``. A field that a reader must understand needs a new format: an older reader then refuses the entry
and asks for an upgrade. Unknown content inside a known field is refused.

The record keys of ledger entries: ``[kind, replication, source topic, source partition, target topic, ...]``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from kafka_replication.ledger.entries import (
    Deleted,
    Entry,
    Gap,
    Handled,
    Position,
    Receipt,
    Removed,
    Start,
    Verified,
)
from kafka_replication.ledger.placement import UPGRADE
from kafka_replication.ledger.values import LedgerEntry
from kafka_replication.model.errors import LedgerUnreadable
from kafka_replication.model.offsets import PartitionKey, TopicPartition, dump

FOREIGN = "only this product may write the ledger topics: find the other writer, then restore or delete the entry"

_TYPES = [str, str, str, int, str]


def key_of(key: PartitionKey, entry: Entry) -> bytes:
    """The record key of this entry, with further numbers where a partition has several of its kind."""
    numbers: tuple[int, ...] = ()
    match entry:
        case Receipt():
            numbers = entry.generation, entry.range.from_
        case Gap():
            numbers = entry.numbers
        case Handled():
            numbered = (entry.number,) if entry.number else ()  # the first one has the key that it always had
            numbers = entry.generation, entry.offsets.ranges[0].from_, *numbered
    return key.entry(entry.KIND, *numbers)


def decode_key(data: bytes | None) -> tuple[str, PartitionKey, tuple[int, ...]]:
    """(kind, key, further numbers). Raises LedgerUnreadable for a key that this product did not write."""
    kind, replication, topic, partition, target, *more = parts_of(data)
    try:
        return kind, PartitionKey(replication, TopicPartition(topic, partition), target), tuple(more)
    except ValueError as e:  # no partition that there can be
        raise _not_ours(data) from e


def parts_of(data: bytes | None) -> list[Any]:
    """The parts of a key: kind, replication, source topic, source partition, target topic, and further numbers. Raises
    LedgerUnreadable for a key that this product did not write.
    """
    try:
        parts: list[Any] = json.loads((data or b"").decode())  # of bytes it would find out the encoding first
        types = [*map(type, parts)]
    except (ValueError, TypeError) as e:
        raise _not_ours(data) from e
    if types[:5] != _TYPES or (len(types) > len(_TYPES) and set(types[5:]) != {int}):
        raise _not_ours(data)
    return parts


def _not_ours(data: bytes | None) -> LedgerUnreadable:
    return LedgerUnreadable(f"a ledger entry has the key {data!r}, which is not ours", FOREIGN)


E = TypeVar("E", bound=LedgerEntry)
KINDS: Final[Mapping[str, type[Entry]]] = {
    kind.KIND: kind for kind in (Position, Verified, Gap, Start, Deleted, Removed, Handled, Receipt)
}


def encode(entry: Entry) -> bytes:
    """The entry as JSON: sorted keys, no spaces. Known fields win over ``extra``."""
    form = _form(entry.KIND)
    content: dict[str, Any] = form.adapter.dump_python(entry, mode="json", exclude={"extra"})
    for name, default in form.optional.items():
        if getattr(entry, name) == default:
            del content[name]
    return dump({**entry.extra, **content, "format": entry.FORMAT, "type": entry.KIND})


def decode(kind: type[E], data: bytes) -> E:
    """The entry of this kind. Raises LedgerUnreadable for anything else, and for another format."""
    content, form = _load(kind, data), _form(kind.KIND)
    try:
        if missing := form.required - content.keys():
            raise ValueError(f"{min(missing)}: it is missing")
        entry: E = form.adapter.validate_json(data)
    except ValueError as e:
        raise LedgerUnreadable(f"a ledger entry is malformed ({reason(e)}): {data[:200]!r}", FOREIGN) from e
    unknown = content.keys() - form.required - form.optional.keys()
    object.__setattr__(entry, "extra", {name: content[name] for name in unknown})
    return entry


def _load(kind: type[LedgerEntry], data: bytes) -> dict[str, Any]:
    """The fields as JSON has them. Raises LedgerUnreadable."""
    try:
        content: dict[str, Any] = json.loads(data)
        type_, format_ = content.pop("type"), content.pop("format")
        if type(format_) is not int:
            raise TypeError(f"its format is {format_!r}")
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as e:
        raise LedgerUnreadable(f"a ledger entry is not readable: {data[:200]!r}", FOREIGN) from e
    if type_ != kind.KIND:
        raise LedgerUnreadable(f"a ledger entry is a {type_!r} where a {kind.KIND} belongs", FOREIGN)
    if format_ > kind.FORMAT:
        raise LedgerUnreadable(
            f"a ledger entry of kind {type_} has format {format_}, this version reads up to {kind.FORMAT}", UPGRADE
        )
    if format_ < 1:
        raise LedgerUnreadable(f"a ledger entry is malformed (no format {format_}): {data[:200]!r}", FOREIGN)
    return content


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """The JSON of one kind: its required fields, and the default of each optional one."""

    adapter: TypeAdapter[Any]
    required: frozenset[str]
    optional: Mapping[str, Any]


def build(*kinds: type[Entry]) -> None:
    """Build what reads and writes entries of these kinds, which takes tens of milliseconds, before threads need it."""
    for kind in kinds:
        _form(kind.KIND)


@cache
def _form(kind: str) -> _Form:
    entry = KINDS[kind]
    declared = {field.name: field for field in fields(entry) if field.name != "extra"}
    optional = {
        name: field.default if field.default_factory is MISSING else field.default_factory()
        for name, field in declared.items()
        if name in entry.OPTIONAL
    }
    return _Form(adapter=TypeAdapter(entry), required=frozenset(declared) - entry.OPTIONAL, optional=optional)


def reason(error: Exception) -> str:
    """The first thing that is wrong with a text, and where in it."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_context=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(error)
