"""The quarantine topic: how a record that was set aside lies there, and how it is read again.

A record keeps its key, value and headers; its own timestamp is a header, because the topic may not take it. The headers
that are added come last; their names begin with `PREFIX`.

Finds the records of one partition in the quarantine topic, where the ledger's receipts of them have expired.

Limits of a target topic: the records that it is certain to refuse, from its configuration. Pure; the broker decides
everything else.

The rules are those of Kafka's ``LogValidator``: a record without a key on a compacted topic, a timestamp out of bounds.
``UnifiedLog`` compares the size of a batch as it arrives, compressed by the producer, with ``max.message.bytes`` and
with ``segment.bytes``.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Self

from confluent_kafka import Message
from confluent_kafka.admin import AdminClient

from kafka_replication.copying.sink import Record, digest_of, shortened, size_of
from kafka_replication.kafka import clients, offsets, topics
from kafka_replication.kafka.cursor import Cursor
from kafka_replication.kafka.reading import headers_of, offset_of
from kafka_replication.ledger.entries import FailedRecord, Ids, Place
from kafka_replication.model.choices import Failure, FailureKind
from kafka_replication.model.offsets import PartitionKey, TopicPartition, consumer_group, readable
from kafka_replication.model.times import now
from kafka_replication.planning.topic_settings import AFTER, BEFORE, after_limit, before_limit
from kafka_replication.verification.digests import key_digest

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
    record = original_of(message.key(), message.value(), headers)
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


def original_of(key: bytes | None, value: bytes | None, headers: Any) -> Record | None:
    """The record as the source had it, from one of the quarantine topic. None if it lies there without its whole
    content, or is none of ours.
    """
    every, ours = list(headers or ()), ours_of(headers)
    if ours.get("content") != "whole":
        return None
    return int(ours["offset"]), int(ours["timestamp"]), key, value, every[: _first_of_ours(every)] or None


def quarantined_records(
    config: clients.ClientConfig, admin: AdminClient, topic: str, key: PartitionKey, generation: int, stall: float
) -> Iterator[tuple[FailedRecord, str]]:
    """The records of this key and generation, and when they were quarantined. Nothing if there is no topic.

    Raises Stalled if a transaction stays open for ``stall`` seconds: it hides what lies behind it.
    """
    state = topics.states(admin, [topic]).get(topic)
    partitions = [TopicPartition(topic, number) for number in sorted(state.partitions)] if state else []
    starts, ends = offsets.log_starts(admin, partitions), offsets.stable_ends(admin, partitions, stall)
    for at in partitions:
        with closing(Cursor(config, consumer_group(key.replication), at, stall)) as cursor:
            for message in cursor.read(readable(starts[at], ends[at])):
                headers, content_key = headers_of(message), message.key()
                ours = ours_of(headers)
                if not is_of(ours, key) or ours["generation"] != str(generation):
                    continue
                original = original_of(content_key, message.value(), headers)
                failed = FailedRecord(
                    offset=int(ours["offset"]),
                    kind=ours["kind"],
                    reason=ours["reason"],
                    error=ours["error"],
                    size=-1 if original is None else size_of(original),
                    key_digest=key_digest(content_key),
                    digest=digest_of(original) if original else "",
                    place=Place(at.topic, at.partition, offset_of(message)),
                )
                yield failed, ours["time"]


class QuarantineEnds:
    """The ends of the partitions of quarantine topics, each asked for once: what was quarantined before lies below."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin, self._ends = admin, dict[TopicPartition, int]()

    def has(self, place: Place) -> bool:
        """True if the place can be read. Not if the topic was deleted, or created again and is shorter now: a reader
        would wait for it.
        """
        at = TopicPartition(place.topic, place.partition)
        if at not in self._ends:
            state = topics.states(self._admin, [at.topic]).get(at.topic)
            there = state is not None and at.partition in state.partitions
            self._ends[at] = offsets.high_watermarks(self._admin, [at])[at] if there else 0
        return place.offset < self._ends[at]


SIZE, SEGMENT = "max.message.bytes", "segment.bytes"
FRAMING = 68  # bytes of a batch with one record (61 + 7), beside its key, value and headers; a large one needs more
CLOCKS = 60_000  # ms by which the broker's clock may differ from ours
WINDOW = 32 << 10  # bytes that zlib looks back
PROBES, PROBE = 64, 16  # places of a record where repetitions are looked for, and bytes compared there
_UNLIMITED = 2**62


def largest_batch(config: Mapping[str, str]) -> int:
    """The size in bytes of the largest batch that a topic with this configuration takes: it has to fit one segment."""
    return min(int(config[SIZE]), int(config.get(SEGMENT, _UNLIMITED)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLimits:
    """The limits of one target topic for a producer that compresses with ``codec``. Times are in milliseconds."""

    topic: str
    size: int
    codec: str = "none"
    compacted: bool = False
    before: int = _UNLIMITED
    after: int = _UNLIMITED
    now: Callable[[], float] = field(default=time.time, compare=False)

    @classmethod
    def of(cls, topic: str, config: Mapping[str, str], producer: Mapping[str, Any]) -> Self:
        """The limits of a topic with this configuration. ``producer`` has the settings of the target's connection."""
        codec = producer.get("compression.type") or producer.get("compression.codec") or "lz4"
        return cls(
            topic=topic,
            size=int(config.get(SIZE, _UNLIMITED)),
            codec=str(codec),
            compacted="compact" in config.get("cleanup.policy", ""),
            before=int(before_limit(config)),
            after=int(after_limit(config)),
        )

    def refusal(self, record: Record) -> Failure | None:
        """The failure of a record that the broker is certain to refuse; None for every other one."""
        offset, timestamp, key, _, _ = record
        if key is None and self.compacted:
            reason = f"it has no key, and the target topic {self.topic} is compacted"
            return Failure(offset, FailureKind.REFUSED, reason, "INVALID_RECORD")
        if self.before < _UNLIMITED or self.after < _UNLIMITED:
            now = self.now() * 1000
            if timestamp < now - self.before - CLOCKS:
                return self._out_of_bounds(record, f"{BEFORE}={self.before}")
            if timestamp > now + self.after + CLOCKS:
                return self._out_of_bounds(record, f"{AFTER}={self.after}")
        size = size_of(record)
        if size + FRAMING > self.size and self._stays_too_large(record):
            reason = f"its {size} bytes are too many for the target topic {self.topic} ({SIZE}={self.size})"
            return Failure(offset, FailureKind.TOO_LARGE, reason, "MSG_SIZE_TOO_LARGE")
        return None

    def is_suspect(self, record: Record) -> bool:
        """True if only the broker knows that the record is too large: that depends on how it is compressed."""
        return size_of(record) + 2 * FRAMING > self.size

    def _out_of_bounds(self, record: Record, limit: str) -> Failure:
        reason = f"its timestamp {record[1]} is outside the limits of the target topic {self.topic} ({limit})"
        return Failure(record[0], FailureKind.REFUSED, reason, "INVALID_TIMESTAMP")

    def _stays_too_large(self, record: Record) -> bool:
        """True if no codec of the client makes the record fit.

        What zlib does not make smaller, lz4 and snappy do not either, unless content repeats at a distance that zlib
        does not look back to. zstd can be better than zlib: then the broker is asked.
        """
        if self.codec in ("none", ""):
            return True
        if self.codec == "zstd":
            return False
        effort = 9 if self.codec == "gzip" else 1
        _, _, key, value, headers = record
        content = b"".join([key or b"", value or b"", *(part or b"" for _, part in headers or ())])
        if not _compresses_above(self.size * 1.05, content, effort):
            return False
        return len(content) <= WINDOW or not _repeats(content)


def _compresses_above(limit: float, content: bytes, effort: int) -> bool:
    """True if zlib makes more bytes of it. Ends as soon as that is known: a record may be many times too large."""
    compressor, size = zlib.compressobj(effort), 0
    for begin in range(0, len(content), WINDOW):
        size += len(compressor.compress(content[begin : begin + WINDOW]))
        if size > limit:
            return True
    return size + len(compressor.flush()) > limit


def _repeats(content: bytes) -> bool:
    """True if something of the content comes again, as far as samples show."""
    step = max(PROBE, len(content) // PROBES)
    return any(
        content.find(content[begin : begin + PROBE], begin + 1) >= 0 for begin in range(0, len(content) - PROBE, step)
    )
