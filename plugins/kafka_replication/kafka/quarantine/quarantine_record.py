"""The quarantine topic: how a record that was set aside lies there, and how it is read again.

A record keeps its key, value and headers; its own timestamp is a header, because the topic may not take it. The headers
that are added come last; their names begin with `PREFIX`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Message

from kafka_replication.kafka.read.scan import headers_of
from kafka_replication.ledger.entries import FailedRecord, Ids
from kafka_replication.model.failures import Failure
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.times import now
from kafka_replication.sinks.port import Record, digest_of, shortened

PREFIX = "kafka-replication.failed."
NAMES = {  # of the headers that are added
    *("cluster", "replication", "topic", "partition", "offset", "timestamp", "target", "generation"),
    *("kind", "reason", "error", "time", "content"),
}


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a partition's records, for the headers."""

    key: PartitionKey
    ids: Ids
    generation: int


def partition_of(key: PartitionKey, partitions: int) -> int:
    """The partition of the quarantine topic that takes the records of this key, in their order."""
    return key.ledger_partition % partitions


def headers_for(record: Record, failure: Failure, origin: Origin, *, whole: bool) -> list[tuple[str, bytes | None]]:
    """The record's headers and ours. ``whole``: key, value and headers are all there."""
    key = origin.key
    ours = {
        "cluster": origin.ids.source_cluster,
        "replication": key.replication,
        "topic": key.source.topic,
        "partition": key.source.partition,
        "offset": failure.offset,
        "timestamp": record[1],
        "target": key.target_topic,
        "generation": origin.generation,
        "kind": failure.kind.value,
        "reason": shortened(failure.reason),
        "error": failure.error,
        "time": now(),
        "content": "whole" if whole else "incomplete",
    }
    return [*(record[4] or ()), *((f"{PREFIX}{name}", str(value).encode()) for name, value in ours.items())]


def is_copy_of(message: Message, key: PartitionKey, failed: FailedRecord) -> bool:
    """True if this record of the quarantine topic is the one that the receipt names."""
    headers = headers_of(message)
    ours = ours_of(headers)
    if not is_of(ours, key) or ours["offset"] != str(failed.offset):
        return False
    record = original(message.key(), message.value(), headers)
    return record is None or digest_of(record) == failed.digest


def is_of(ours: Mapping[str, str], key: PartitionKey) -> bool:
    """True if a record with these headers was quarantined for this key, and not by somebody else, or by hand."""
    source = key.source
    wanted = {
        "replication": key.replication,
        "topic": source.topic,
        "partition": str(source.partition),
        "target": key.target_topic,
    }
    numbers = (ours.get(name, "").removeprefix("-") for name in ("offset", "timestamp", "generation"))
    return wanted.items() <= ours.items() and ours.keys() >= NAMES and all(map(str.isdecimal, numbers))


def ours_of(headers: Any) -> dict[str, str]:
    """The headers that were added, without their prefix; empty for a record that is none of ours.

    A record that was quarantined before, on another target, has such headers itself: ours are the last ones.
    """
    every = list(headers or ())
    first = _first_of_ours(every)
    if first is None:
        return {}
    return {name.removeprefix(PREFIX): (content or b"").decode(errors="replace") for name, content in every[first:]}


def _first_of_ours(headers: Sequence[tuple[str, bytes | None]]) -> int | None:
    return max((number for number, (name, _) in enumerate(headers) if name == f"{PREFIX}cluster"), default=None)


def original(key: bytes | None, value: bytes | None, headers: Any) -> Record | None:
    """The record as the source had it, from one of the quarantine topic. None if it lies there without its whole
    content, or is none of ours.
    """
    every, ours = list(headers or ()), ours_of(headers)
    if ours.get("content") != "whole":
        return None
    return int(ours["offset"]), int(ours["timestamp"]), key, value, every[: _first_of_ours(every)] or None
