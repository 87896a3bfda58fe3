"""Describes in words which values a key of a replication file takes, for error messages and the generated page."""

from __future__ import annotations

import types
from collections.abc import Iterator
from datetime import datetime
from itertools import chain
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Le, MaxLen
from pydantic.fields import FieldInfo

from kafka_replication.config.sections.base import Section

_PLAIN = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    datetime: "a time in RFC 3339",
    type(None): "null",
}


def key_of(name: str, field: FieldInfo) -> str:
    """The key as the file spells it."""
    return field.alias or name


def fields_of(section: type[Section]) -> dict[str, FieldInfo]:
    """Key in the file -> field, in the model's order."""
    return {key_of(name, field): field for name, field in section.model_fields.items()}


def section_of(field: FieldInfo) -> type[Section] | None:
    """The section below a key, or None if the key takes a plain value."""
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def field_at(root: type[Section], place: tuple[str | int, ...]) -> tuple[FieldInfo | None, type[Section]]:
    """The field at a key path and the section that contains it. The field is None if the section has no such key."""
    section = root
    field: FieldInfo | None = None
    for step in place:
        known = fields_of(section).get(str(step))
        if known is None:
            return None, section
        field = known
        inner = section_of(known)
        if inner is None:
            break
        if step != place[-1]:
            section = inner
    return field, section


def describe(field: FieldInfo) -> str:
    """The values that the field takes, for example ``a whole number from 1 to 900, or null``."""
    section = section_of(field)
    if section is not None:
        return f"a mapping with the keys {', '.join(fields_of(section))}"
    return _describe(field.annotation, tuple(field.metadata))


def _describe(kind: Any, metadata: tuple[Any, ...]) -> str:
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        nested = (extra.metadata if isinstance(extra, FieldInfo) else [extra] for extra in args[1:])
        return _describe(args[0], metadata + tuple(chain.from_iterable(nested)))
    if origin in (Union, types.UnionType):
        return ", or ".join(_describe(member, metadata) for member in args)
    if origin is Literal:
        return " or ".join(map(str, args))
    if origin is tuple:
        return f"a list of {_describe(args[0], ())}"
    if origin is dict:
        return "a mapping of text to text" if args[1] is not Any else "a mapping"
    if isinstance(kind, type) and issubclass(kind, Section):
        return f"mappings with the keys {', '.join(fields_of(kind))}"
    return _PLAIN[kind] + "".join(_bounds(kind, metadata))


def _bounds(kind: Any, metadata: tuple[Any, ...]) -> Iterator[str]:
    low = next((bound.ge for bound in metadata if isinstance(bound, Ge)), None)
    high = next((bound.le for bound in metadata if isinstance(bound, Le)), None)
    longest = next((bound.max_length for bound in metadata if isinstance(bound, MaxLen)), None)
    if kind in (int, float) and low is not None:
        yield f" from {low} to {high}" if high is not None else f" of at least {low}"
    elif kind is str and longest is not None:
        yield f" of at most {longest} characters"
