"""Times as text: the only place that reads RFC 3339."""

from __future__ import annotations

import re
from datetime import UTC, datetime

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
