"""Transforms as users write them, for the tests."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from kafka_replication.transforms import Record

DOUBLING = "tests.support.user_transforms:doubling"
SECRET = "4111-1111-1111-1111"


def upper(record: Record) -> Record:
    """One record of one."""
    return record.replace(value=(record.value or b"").upper())


def doubling(record: Record) -> Iterator[Record]:
    """None, one or several: as many as the last digit of the key says, up to three."""
    for number in range(min(3, int((record.key or b"0")[-1:]))):
        yield record.replace(value=b"%d of %s" % (number, record.value or b""))


def by_environment(record: Record) -> Record:
    """Not pure."""
    return record.replace(headers=(*record.headers, ("mood", os.environ["MOOD"].encode())))


def masked(record: Record) -> Record:
    """Fails where the value is no JSON."""
    order: dict[str, Any] = json.loads(record.value or b"")
    if "card" not in order:
        raise ValueError(f"no card in {order}")
    return record.replace(value=json.dumps({**order, "card": "****"}).encode())


def wrong_type(record: Record) -> str:
    return "no record" if record.key == b"k7" else record  # type: ignore[return-value]


def at_1970(record: Record) -> Record:
    return record.replace(timestamp=0) if record.key == b"k7" else record


def cut_name(record: Record) -> Record:
    return record.replace(headers=(("a\0b", b"x"),)) if record.key == b"k7" else record


def ends(record: Record) -> Record:
    """Writes down where it comes from."""
    source = record.source
    return record.replace(value=f"{source.topic}-{source.partition}@{source.offset}".encode())


no_function = "text"


def mistyped(record: Record) -> Record:
    return record.replace(value="text")


def strange_list(record: Record) -> list[Any]:
    return [record, 3]


def late(record: Record) -> Iterator[Record]:
    """Fails after its first result."""
    yield record
    raise KeyError(record.value)


def marked(record: Record) -> Record:
    """Fails with the record in its error."""
    if b"no JSON" in (record.value or b"") or b"strict" in (record.value or b""):
        raise ValueError(f"{record!r}")
    return record
