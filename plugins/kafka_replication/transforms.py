"""The record that a user's transform works with.

A replication file names the function: ``transform: package.module:function``.

The function takes one `Record`. It returns a `Record`, several (a list, a tuple or a generator), or None, which leaves
the record out. It must be pure: the same record always gives the same result, because an audit calls it again.

    from kafka_replication.transforms import Record

    def without_address(record: Record) -> Record | None:
        if record.value is None:
            return record  # a tombstone
        order = json.loads(record.value)
        order.pop("address", None)
        return record.replace(value=json.dumps(order).encode())
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True)
class Source:
    """The place where a record was read. ``cluster`` is Kafka's cluster id."""

    cluster: str = ""
    topic: str = ""
    partition: int = -1
    offset: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record. ``timestamp`` is in ms since the epoch. A tombstone has the value None.

    ``source`` is set before each call. What a function returns there is not looked at.
    """

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    timestamp: int
    source: Source = Source()

    def header(self, name: str) -> bytes | None:
        """The value of the last header of this name; None if there is none."""
        return next((value for known, value in reversed(self.headers) if known == name), None)

    def replace(self, **changes: Any) -> Record:
        """The same record with another ``key``, ``value``, ``headers`` or ``timestamp``."""
        return dataclasses.replace(self, **changes)
