"""The steps of a pipeline that are built in: `exclude_from`, `filter` and the transform `provenance`."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from kafka_replication.config.values.expression import Expression, reason
from kafka_replication.sinks.port import Record, size_of

# The headers that `provenance` adds, one of each for every replication that a record went through, the first one first.
CLUSTER = "kafka-replication.source.cluster"
TOPIC = "kafka-replication.source.topic"
PARTITION = "kafka-replication.source.partition"
OFFSET = "kafka-replication.source.offset"


@dataclass(frozen=True, slots=True)
class Origin:
    """The partition that records are read from."""

    cluster: str  # its id
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class StepFailed(Exception):
    """Raised if a step cannot be applied to a record. The text shows nothing of the record. ``error`` is the error's
    class.
    """

    def __init__(self, why: str, error: str) -> None:
        super().__init__(why)
        self.error = error


Step = Callable[[Record, Origin], Iterable[Record]]  # raises StepFailed


def exclusion(clusters: Collection[str]) -> Step:
    excluded = frozenset(cluster.encode() for cluster in clusters)

    def step(record: Record, _: Origin) -> Iterable[Record]:
        headers = record[4]
        if headers and any(name == CLUSTER and value in excluded for name, value in headers):
            return ()
        return (record,)

    return step


def provenance(record: Record, origin: Origin) -> Iterable[Record]:
    offset, timestamp, key, value, headers = record
    added = (
        (CLUSTER, origin.cluster.encode()),
        (TOPIC, origin.topic.encode()),
        (PARTITION, str(origin.partition).encode()),
        (OFFSET, str(offset).encode()),
    )
    return ((offset, timestamp, key, value, [*(headers or ()), *added]),)


def filtering(expression: Expression) -> Step:
    uses = expression.uses

    def step(record: Record, origin: Origin) -> Iterable[Record]:
        document = {name: make(record, origin) for name, make in DOCUMENT.items() if name in uses}
        try:
            return (record,) if expression.keeps(document) else ()
        except Exception as error:  # noqa: BLE001  # what a function of JMESPath raises for an odd value
            failed = StepFailed(reason(error), type(error).__name__)
        raise failed  # outside of the handler: the error, which may show the record, is not its context

    return step


# The document that a filter sees; `config.values.expression.FIELDS` are its keys.
DOCUMENT: Mapping[str, Callable[[Record, Origin], object]] = {
    "key": lambda record, _: readable(record[2]),
    "value": lambda record, _: readable(record[3]),
    "headers": lambda record, _: {name: _text(value) for name, value in record[4] or ()},
    "timestamp": lambda record, _: record[1],
    "tombstone": lambda record, _: record[3] is None,
    "topic": lambda _, origin: origin.topic,
    "partition": lambda _, origin: origin.partition,
    "offset": lambda record, _: record[0],
    "size": lambda record, _: size_of(record),
}


def readable(content: bytes | None) -> object:
    """A key or a value as a filter sees it: parsed if it is a JSON object or array, else as UTF-8 text, else None."""
    text = _text(content)
    if text is None or text.lstrip(" \t\r\n")[:1] not in ("{", "["):
        return text
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return text


def _no_number(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


def _text(content: bytes | None) -> str | None:
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError:
        return None
