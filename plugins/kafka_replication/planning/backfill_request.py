"""The request of a backfill, parsed strictly from the raw values of a form or a command.

Errors are raised before anything starts. They name the field, the value and what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NoReturn

from kafka_replication.config import Replication
from kafka_replication.config.expression import TIME_FORM, parse_time
from kafka_replication.config.names import target_problem, topic_problem
from kafka_replication.config.reading import shown_value
from kafka_replication.model.errors import BadInput, Mistakes
from kafka_replication.model.offsets import MAX_OFFSET

Point = int | datetime  # an offset, or an aware time in UTC
EARLIEST, LATEST = "earliest", "latest"
POINT_FORM = f"an offset (a whole number from 0 to {MAX_OFFSET}), or {TIME_FORM}"

_WHOLE = re.compile(r"0|[1-9][0-9]*")
_NEGATIVE = re.compile(r"-[0-9]+")
_MAX_PARTITION = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillRequest:
    """Copy ``from_ <= offset < until`` of these topics. The defaults: all topics and partitions; from the first offset
    of the source to its present end; the replication's own target topic.
    """

    topics: tuple[str, ...]
    from_: Point | None
    until: Point | None
    partitions: tuple[int, ...] = ()
    target_topic: str | None = None
    dry_run: bool = False


def parse(
    replication: Replication,
    *,
    topics: object,
    from_: object,
    until: object,
    partitions: object = (),
    target_topic: object = None,
    dry_run: object = False,
) -> BackfillRequest:
    """Parse the raw values into a request. None leaves a value open. An empty text does not: it may come from a shell
    variable that is not set. Raises BadInput.
    """
    mistakes = Mistakes()
    names = mistakes.of(lambda: parse_topics(replication, topics), ())
    if not isinstance(dry_run, bool):
        _refuse("dry_run", dry_run, "must be true or false")
    start = mistakes.of(lambda: None if from_ is None or from_ == EARLIEST else parse_point("from", from_), None)
    end = mistakes.of(lambda: None if until is None or until == LATEST else parse_point("until", until), None)
    numbers = mistakes.of(lambda: tuple(sorted({_partition(value) for value in _numbers(partitions)})), ())
    mistakes.raise_all()
    if start is not None and end is not None:
        check_order("", start, end)
    if isinstance(start, datetime) and start > datetime.now(UTC):
        _refuse("from", show(start), "lies in the future: there is nothing to copy yet")
    return BackfillRequest(
        topics=names,
        from_=start,
        until=end,
        partitions=numbers,
        target_topic=_target(replication, names, target_topic),
        dry_run=dry_run,
    )


def parse_topics(replication: Replication, value: object) -> tuple[str, ...]:
    """Source topics of the replication, each once. Raises BadInput."""
    given = () if value is None else _list("topic", value)
    return tuple(dict.fromkeys(_topic(replication, name) for name in given))


def parse_point(field: str, value: object) -> Point:
    """An offset or an aware time in UTC. Raises BadInput naming ``field``."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value) if abs(value) < 10**30 else "1" * 30
    if not isinstance(value, str):
        _refuse(field, value, f"must be {POINT_FORM}")
    if _WHOLE.fullmatch(value):
        if len(value) > len(str(MAX_OFFSET)) or int(value) > MAX_OFFSET:
            _refuse(field, value, f"is larger than any offset: Kafka's offsets are below 2^63, at most {MAX_OFFSET}")
        return int(value)
    if _NEGATIVE.fullmatch(value):
        _refuse(field, value, f"must not be negative: it must be {POINT_FORM}")
    try:
        return parse_time(value, POINT_FORM)
    except ValueError as e:
        _refuse(field, value, str(e))


def check_order(where: str, from_: Point, until: Point) -> None:
    """Raise BadInput unless ``from_`` is before ``until``. An offset and a time are compared later, as offsets."""
    if isinstance(from_, int) is not isinstance(until, int):
        return
    if from_ > until:  # type: ignore[operator]  # both have the same type
        than = "greater than" if isinstance(from_, int) else "later than"
        raise BadInput(
            f"{where}from ({show(from_)}) is {than} until ({show(until)})",
            "swap them: a range is [from, until)",
        )
    if from_ == until:
        raise BadInput(
            f"{where}from and until are both {show(from_)}: the range is empty",
            "a range is [from, until), without until itself",
        )


def show(point: Point) -> str:
    return str(point) if isinstance(point, int) else point.isoformat().replace("+00:00", "Z")


def _numbers(value: object) -> Sequence[object]:
    """A form has the numbers in one line, separated by commas."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",")] if value.strip() else ()
    return () if value is None else _list("partition", value)


def _list(field: str, value: object) -> Sequence[object]:
    if isinstance(value, (list, tuple)):
        return value
    return _refuse(field, value, "must be a list")


def _topic(replication: Replication, value: object) -> str:
    if not isinstance(value, str):
        _refuse("topic", value, "must be a topic's name")
    if problem := topic_problem(value):
        _refuse("topic", value, problem)
    if not replication.selects(value):
        _refuse(
            "topic",
            value,
            f"is not a topic of replication {replication.name}: topics.include selects"
            f" {', '.join(replication.topics.include)}",
        )
    return value


def _partition(value: object) -> int:
    if isinstance(value, str) and _WHOLE.fullmatch(value) and len(value) <= 10:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_PARTITION:
        _refuse("partition", value, f"must be a whole number from 0 to {_MAX_PARTITION}")
    return value


def _target(replication: Replication, topics: Sequence[str], value: object) -> str | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        _refuse("target_topic", value, "must be a topic's name")
    if problem := target_problem(value):
        _refuse("target_topic", value, problem)
    if len(topics) != 1:
        _refuse(
            "target_topic",
            value,
            f"takes one source topic, not {len(topics) or 'all'}: their records would mix in its partitions",
        )
    return None if value == replication.target_topic(topics[0]) else value


def _refuse(field: str, value: object, why: str) -> NoReturn:
    raise BadInput(
        (
            f"{field}: {shown_value(value)} {why}"
            if why.startswith(("is ", "lies ", "takes ", "starts "))
            else f"{field}: {why}; found {shown_value(value)}"
        ),
        "correct it and start again; nothing was started",
    )
