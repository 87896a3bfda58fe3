"""The expression of `filter`: JMESPath over the document of one record. It runs no user code.

``FIELDS`` are the keys of the document. An expression that uses another key, or a function that does not exist, is
refused when the file is read: JMESPath would take the key for null, and the filter would leave out every record.

Times as text: the only place that reads RFC 3339.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import jmespath
from jmespath import functions
from jmespath.exceptions import IncompleteExpressionError, JMESPathError, JMESPathTypeError, LexerError, ParseError
from jmespath.visitor import TreeInterpreter

from kafka_replication.config.names import did_you_mean
from kafka_replication.model.times import EPOCH

NAMED_STARTS = ("earliest", "latest")
TIME_FORM = "a time in RFC 3339 with its zone, such as 2030-01-31T06:00:00Z"

_LOCAL = (
    r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[Tt ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?"
)
_ZONE = r"([Zz]|[+-][0-9]{2}:[0-9]{2})"
_TIME = re.compile(f"{_LOCAL}{_ZONE}?")


def parse_time(value: object, form: str = TIME_FORM) -> datetime:
    """An aware datetime in UTC, from RFC 3339 text or a datetime. Raises ValueError; ``form`` says what is allowed.

    Times before 1970 are refused. They would be negative timestamps, and Kafka's ListOffsets reads -1 as "latest" and
    -2 as "earliest".
    """
    moment = value if isinstance(value, datetime) else _read(value, form)
    if moment.utcoffset() is None:
        raise ValueError("must say its time zone: end it with Z for UTC, or with an offset such as +02:00")
    try:
        moment = moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("must lie between the years 1970 and 9999") from None
    if moment < EPOCH:
        raise ValueError("must not lie before 1970-01-01T00:00:00Z")
    return moment


def parse_start(value: object) -> str | datetime:
    """``earliest``, ``latest``, or a time as `parse_time` reads it. Raises ValueError for anything else."""
    if isinstance(value, str) and value in NAMED_STARTS:
        return value
    return parse_time(value, f"earliest, latest, or {TIME_FORM}")


def _read(value: object, form: str) -> datetime:
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if not match:
        raise ValueError(f"must be {form}")
    try:
        return datetime.fromisoformat(match[0].upper())
    except ValueError as error:
        raise ValueError(f"must be a time that exists: {error}") from None


# The fields of a record that `filter` sees; docs/filters-and-transforms.md explains each.
FIELDS = ("key", "value", "headers", "timestamp", "tombstone", "topic", "partition", "offset", "size")
LONGEST = 10_000  # characters

_Node = Mapping[str, Any]
# The first child of these gets the document; the others get the result of the first one.
_STEPS = frozenset(
    {"subexpression", "index_expression", "pipe", "projection", "filter_projection", "value_projection", "flatten"}
)


class _Functions(functions.Functions):
    """JMESPath's own functions, and ``time``."""

    @functions.signature({"types": ["string"]})
    def _func_time(self, text: str) -> int:
        return round(parse_time(text).timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class Expression:
    """A filter that was checked. ``uses`` are the fields of the document that it needs."""

    text: str
    uses: frozenset[str]
    negated: _Node  # JMESPath itself decides what counts as false

    def keeps(self, document: Mapping[str, Any]) -> bool:
        """True if the record stays. False, null and empty values leave it out. Raises ValueError or TypeError, whose
        text may show the record; use `reason` for messages.
        """
        return _INTERPRETER.visit(self.negated, document) is False


# One for all records: `search` would make one for each, which costs more than it evaluates.
_INTERPRETER: Any = TreeInterpreter(jmespath.Options(custom_functions=_Functions()))


def check_expression(text: str) -> str:
    """Return the text. Raises ValueError, which says what is wrong."""
    parse(text)
    return text


def parse(text: str) -> Expression:
    """The checked filter. Raises ValueError, which says what is wrong."""
    if not text.strip():
        raise ValueError("must not be empty; leave the key out to copy every record")
    if len(text) > LONGEST:
        raise ValueError(f"must be at most {LONGEST} characters long")
    try:
        tree = _parsed(text)
    except JMESPathError as error:
        raise ValueError(f"is not a JMESPath expression: {_place(error)}") from None
    except RecursionError:
        raise ValueError("is not a JMESPath expression: it is nested too deeply") from None
    _check(tree)
    fields = list(_of_document(tree))
    for name in fields:
        if name in ("null", "true", "false"):
            raise ValueError(f"{name} is the name of a field; the value is written in backticks: `{name}`")
        if name not in (*FIELDS, _ALL):
            raise ValueError(f"a record has no {name!r}{did_you_mean(name, FIELDS)}; it has {', '.join(FIELDS)}")
    return Expression(text, frozenset(FIELDS if _ALL in fields else fields), _parsed(f"!({text})"))


def reason(error: Exception) -> str:
    """The reason why an expression failed at a record, without any of the record's content."""
    if isinstance(error, JMESPathTypeError):
        expected = " or ".join(error.expected_types)
        return f"{error.function_name}() takes {expected}, and found {error.actual_type}"
    if isinstance(error, TypeError):
        return "it compares values of different types"
    return type(error).__name__


_ALL = "@"  # the document itself is used


def _parsed(text: str) -> _Node:
    compiled: Any = jmespath.compile(text)
    tree: _Node = compiled.parsed
    return tree


def _place(error: JMESPathError) -> str:
    if isinstance(error, LexerError):
        return f"{error.message} at character {error.lexer_position + 1}"
    if isinstance(error, IncompleteExpressionError):
        return "it ends too early"
    if isinstance(error, ParseError):
        return f"unexpected {error.token_value!r} at character {error.lex_position + 1}"
    return str(error)


def _of_document(node: _Node) -> Iterator[str]:
    """The fields that this part of an expression takes from the document."""
    kind, children = node["type"], node["children"]
    if kind == "field":
        yield node["value"]
    elif kind in ("current", "identity"):
        yield _ALL
    elif kind in _STEPS:
        yield from _of_document(children[0])
        if kind in ("subexpression", "pipe") and children[0]["type"] == "current":  # `@.key`
            yield from _of_document(children[1])
    elif kind not in ("literal", "index", "slice", "expref"):
        for child in children:
            yield from _of_document(child)


def _check(node: _Node) -> None:
    children = [child for child in node["children"] if isinstance(child, Mapping)]  # a slice has numbers
    if node["type"] == "function_expression":
        _check_call(node["value"], children)
    if node["type"] in _STEPS - {"pipe"} and children[0]["type"] == "not_expression":
        raise ValueError("! binds stronger than a dot: write !(value.a), not !value.a")
    for child in children:
        _check(child)


def _check_call(name: str, given: Sequence[_Node]) -> None:
    known = _Functions.FUNCTION_TABLE
    if name not in known:
        raise ValueError(f"there is no function {name!r}{did_you_mean(name, known)}")
    wanted = known[name]["signature"]
    variadic = bool(wanted) and wanted[-1].get("variadic", False)
    if len(given) < len(wanted) or (len(given) > len(wanted) and not variadic):
        raise ValueError(f"{name}() takes {len(wanted)} arguments, and is given {len(given)}")
    if name == "time" and given[0]["type"] == "literal":
        parse_time(given[0]["value"])
