"""Schedules and start points as text: cron expressions and RFC 3339 times, checked without Airflow."""

from __future__ import annotations

import re
from datetime import UTC, datetime

# Airflow's cron_presets (airflow/utils/dates.py) and the two timetables that a DAG takes by name.
PRESETS = ("@once", "@continuous", "@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly")
NAMED_STARTS = ("earliest", "latest")
SCHEDULE_FORM = (
    f"a cron expression of 5 fields ('minute hour day-of-month month day-of-week', UTC), or one of {', '.join(PRESETS)}"
)

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of month", 1, 31, {}),
    ("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, start=1)}),
    ("day of week", 0, 7, {name: number for number, name in enumerate(_WEEKDAYS)}),
)
_MONTH_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_PART = re.compile(
    r"(?:(?P<all>\*)|(?P<first>[a-z]{3}|\d{1,2})(?:-(?P<last>[a-z]{3}|\d{1,2}))?)(?:/(?P<step>\d{1,2}))?", re.ASCII
)
_RFC3339 = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?P<zone>[Zz]|[+-]\d{2}:\d{2})?", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def check_schedule(text: str) -> str:
    """A preset or a 5-field cron expression. Raises ValueError with the field that is wrong."""
    if text in PRESETS:
        return text
    fields = text.split()
    if text.startswith("@") or len(fields) != len(_FIELDS):
        raise ValueError(f"must be {SCHEDULE_FORM}")
    values = [_expand(field, *rule) for field, rule in zip(fields, _FIELDS, strict=True)]
    _, _, days, months, _ = values
    if fields[4] == "*" and min(days) > max(_MONTH_DAYS[month - 1] for month in months):
        raise ValueError("names a day that none of its months has, so it would never run")
    return text


def _expand(field: str, what: str, low: int, high: int, names: dict[str, int]) -> set[int]:
    """The values one field stands for, such as ``1-5`` or ``*/15``."""
    values: set[int] = set()
    for part in field.lower().split(","):
        match = _PART.fullmatch(part)
        if not match:
            raise ValueError(
                f"{what} field '{field}' is not cron: write *, a value, a range a-b, a step */n, or a list of these"
                " with commas"
            )
        first, last = (low, high) if match["all"] else _bounds(match, what, low, high, names)
        step = int(match["step"] or 1)
        if not 1 <= step <= high:
            raise ValueError(f"{what} field '{field}' has the step {step}; allowed are 1 to {high}")
        values.update(range(first, last + 1, step))
    return values


def _bounds(match: re.Match[str], what: str, low: int, high: int, names: dict[str, int]) -> tuple[int, int]:
    first = _value(match["first"], what, low, high, names)
    open_end = high if match["step"] else first  # cron reads 5/15 as 5-59/15
    last = _value(match["last"], what, low, high, names) if match["last"] else open_end
    if last < first:
        raise ValueError(
            f"{what} range '{match['first']}-{match['last']}' runs backwards; write two ranges with a comma"
        )
    return first, last


def _value(text: str, what: str, low: int, high: int, names: dict[str, int]) -> int:
    number = int(text) if text.isdigit() else names.get(text)
    if number is None or not low <= number <= high:
        also = f", or {', '.join(names)}" if names else ""
        raise ValueError(f"{what} '{text}' is out of range; allowed are {low} to {high}{also}")
    return number


def parse_start(value: object) -> str | datetime:
    """``earliest``, ``latest``, or a time as an aware datetime in UTC. Raises ValueError for anything else.

    Kafka's ListOffsets gives negative timestamps meanings of their own, so times before 1970 are refused.
    """
    if isinstance(value, str) and value in NAMED_STARTS:
        return value
    time = value if isinstance(value, datetime) else _parse_time(value)
    if time.tzinfo is None or time.utcoffset() is None:
        raise ValueError("must say its time zone: end it with Z for UTC, or with an offset such as +02:00")
    try:
        time = time.astimezone(UTC)
    except OverflowError:
        raise ValueError("must lie between the years 1970 and 9999") from None
    if time < _EPOCH:
        raise ValueError("must not lie before 1970-01-01T00:00:00Z")
    return time


def _parse_time(value: object) -> datetime:
    match = _RFC3339.fullmatch(value) if isinstance(value, str) else None
    if not match:
        raise ValueError("must be earliest, latest, or a time in RFC 3339 such as 2030-01-31T06:00:00Z")
    try:
        return datetime.fromisoformat(match[0].upper())
    except ValueError as error:
        raise ValueError(f"must be a time that exists: {error}") from None
