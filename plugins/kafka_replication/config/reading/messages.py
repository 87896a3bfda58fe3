"""Turns pydantic's errors into sentences for the author of the file: what is allowed, and what the file has."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import ErrorDetails

from kafka_replication.config.model import COMBINATION, Replication
from kafka_replication.config.reading.shape import describe, field_at, fields_of
from kafka_replication.config.reading.yaml import Place

_USERINFO = re.compile(r"//[^/\s]*@")
_SHOWN = 80


def place_of(error: ErrorDetails) -> Place:
    """The key path of the error in the file. Pydantic adds ``[key]`` if the error concerns a mapping's key. An error
    about the whole file says itself which key it is about.
    """
    if error["type"] == COMBINATION:
        return (str(error["ctx"]["place"]),)
    return tuple(step for step in error["loc"] if step != "[key]")


def explain(error: ErrorDetails) -> str:
    """One line: what is wrong, what is allowed, and the value in the file unless it may be a secret."""
    place, kind = place_of(error), error["type"]
    field, section = field_at(Replication, place)
    if kind == COMBINATION:
        return str(error["ctx"]["text"])
    if kind == "extra_forbidden":
        return _unknown_key(str(place[-1]), list(fields_of(section)))
    if kind == "missing" and field is not None:
        return f"required, but missing; it must be {describe(field)}"
    if kind == "value_error":
        text = str(error["ctx"]["error"])
        return text if isinstance(error["input"], Mapping) else _with_value(text, error["input"])
    if kind == "too_short":
        return "must name at least one"
    if kind == "string_too_long":
        return _with_value(f"must be at most {error['ctx']['max_length']} characters long", error["input"])
    if field is None or kind == "string_unicode":
        return _with_value(error["msg"], error["input"])
    if kind == "string_type":
        hint = "must be text; put it in quotes" if isinstance(error["input"], int) else "must be text"
        return _with_value(hint, error["input"])
    return _with_value(f"must be {describe(field)}", error["input"]) + _suggest(error)


def _unknown_key(key: str, allowed: list[str]) -> str:
    near = difflib.get_close_matches(key[:200], allowed, n=1)
    return f"unknown key, did you mean '{near[0]}'?" if near else f"unknown key; allowed: {', '.join(allowed)}"


def _suggest(error: ErrorDetails) -> str:
    if error["type"] != "literal_error" or not isinstance(error["input"], str):
        return ""
    near = difflib.get_close_matches(
        error["input"][:200].lower(), re.findall(r"'([^']+)'", error["ctx"]["expected"]), n=1
    )
    return f", did you mean '{near[0]}'?" if near else ""


def _with_value(text: str, value: Any) -> str:
    return f"{text}; found {shown_value(value)}"


def shown_value(value: object) -> str:
    """The value as a message may show it: on one short line, without the user information of a URL."""
    if value is None or isinstance(value, bool):
        return {None: "nothing (null)", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "a list" if value else "an empty list"
    shown = ascii(_USERINFO.sub("//***@", value)) if isinstance(value, str) else str(value)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}... ({len(shown)} characters)"
