"""The steps of a pipeline that are built in: `exclude_from`, `filter` and the transform `provenance`.

The step of a pipeline that calls a user's function: importing it, calling it, and checking what it returns.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any

from kafka_replication import transforms
from kafka_replication.config.expression import Expression, reason
from kafka_replication.copying.sink import Record, size_of
from kafka_replication.model.errors import BadInput
from kafka_replication.model.offsets import MAX_OFFSET

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


# The document that a filter sees; `config.expression.FIELDS` are its keys.
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


class WrongResult(StepFailed):
    """Raised if a function returned a value that cannot be written."""

    def __init__(self, what: str) -> None:
        super().__init__(f"it returned {what}", "TypeError")


def named(name: str, what: str) -> Any:
    """The value that ``package.module:name`` names. Raises BadInput; its text begins with ``what``."""
    module, _, attribute = name.partition(":")
    remedy = "put its module where Airflow's tasks or this command, and Spark's workers, can import it"
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as e:  # a module of the user's may raise anything
        raise BadInput(
            f"the {what} {name} cannot be imported: {type(e).__name__}: {e}", f"{remedy}, or correct the name"
        ) from e


def imported(name: str, what: str = "transform") -> tuple[Callable[..., object], str]:
    """The function, and the text of the modules that define it. Raises BadInput; its text begins with ``what``."""
    function, module_name = named(name, what), name.partition(":")[0]
    if not callable(function):
        raise BadInput(f"the {what} {name} is not a function but a {type(function).__name__}", "name a function")
    defined_in = getattr(inspect.unwrap(function), "__module__", None) or module_name
    texts = [_source(importlib.import_module(one)) for one in sorted({module_name, defined_in})]
    return function, "\0".join(texts)


@cache  # the text of the imported module: the file may change later
def _source(module: ModuleType) -> str:
    """The module's text: the same on every machine and with every version of Python, unlike its bytecode."""
    find = getattr(getattr(module.__spec__, "loader", None), "get_source", None)
    text = find(module.__name__) if find else None
    if isinstance(text, str):
        return text.replace("\r\n", "\n")  # as it is read from a file, but not from a zip
    file = getattr(module, "__file__", None)  # compiled code alone
    return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else ""


def hash_of(text: str) -> str:
    """The hash that a receipt stores for the text of a definition."""
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def given(record: Record, origin: Origin) -> transforms.Record:
    """The record in the form for a user's function."""
    offset, timestamp, key, value, headers = record
    return transforms.Record(
        key=key,
        value=value,
        headers=tuple(headers or ()),
        timestamp=timestamp,
        source=transforms.Source(origin.cluster, origin.topic, origin.partition, offset),
    )


def transforming(function: Callable[[transforms.Record], object]) -> Step:
    def step(record: Record, origin: Origin) -> Iterable[Record]:
        taken = given(record, origin)
        try:
            made = list(_several(function(taken)))
        except MemoryError:  # of this process, whatever the record is
            raise
        except Exception as e:  # noqa: BLE001  # a function of the user's may raise anything
            failed = _where(e, function)
        else:
            return [_checked(one, record[0]) for one in made]
        raise failed  # outside of the handler: the error, which may show the record, is not its context

    return step


def _several(result: object) -> Iterable[object]:
    """The result of a function as a sequence. Raises StepFailed."""
    if result is None:
        return ()
    if isinstance(result, transforms.Record):
        return (result,)
    if isinstance(result, (list, tuple, Iterator)):
        return result
    raise WrongResult(f"{type(result).__name__}, which is neither a Record nor several nor None")


def _where(error: Exception, function: Callable[..., object]) -> StepFailed:
    """The kind of an error and its line in the user's code. Not its text, which may show the record."""
    if isinstance(error, StepFailed):
        return StepFailed(str(error), error.error)
    own = getattr(getattr(inspect.unwrap(function), "__code__", None), "co_filename", None)
    walked = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    frames = walked[1:]  # the first one is ours
    file, line = next(((file, line) for file, line in reversed(frames) if file == own), (frames or [("", 0)])[-1])
    name = type(error).__name__
    return StepFailed(f"{name} in {Path(file).name}, line {line}" if file else name, name)


def _checked(made: object, offset: int) -> Record:
    """The record that a function returned, as a writer takes it. Raises StepFailed if it cannot be written."""
    if not isinstance(made, transforms.Record):
        raise WrongResult(f"{type(made).__name__} in place of a Record")
    for name, content in (("key", made.key), ("value", made.value)):
        if content is not None and not isinstance(content, bytes):
            raise WrongResult(f"a {name} that is {type(content).__name__}, not bytes")
    timestamp = made.timestamp
    if isinstance(timestamp, bool) or not isinstance(timestamp, int):
        raise WrongResult(f"a timestamp that is {type(timestamp).__name__}, not a whole number of ms")
    if not 0 < timestamp <= MAX_OFFSET:
        raise WrongResult("a timestamp that is not above 0, which the client would replace by the time now")
    return offset, timestamp, made.key, made.value, _headers(made.headers)


def _headers(headers: object) -> list[tuple[str, bytes | None]] | None:
    if not isinstance(headers, (list, tuple)):
        raise WrongResult(f"headers that are {type(headers).__name__}, not a tuple of pairs")
    for pair in headers:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise WrongResult("a header that is no pair of a name and a value")
        name, value = pair
        if not _is_name(name):
            raise WrongResult("a header whose name is not text without a NUL")
        if value is not None and not isinstance(value, bytes):
            raise WrongResult(f"a header whose value is {type(value).__name__}, not bytes")
    return [(name, value) for name, value in headers] or None


def _is_name(name: object) -> bool:
    """True if a client can write and read this header name. A reader cuts a name at a NUL."""
    if not isinstance(name, str) or "\0" in name:
        return False
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
