"""Limits of a target topic: the records that it is certain to refuse, from its configuration. Pure; the broker decides
everything else.

The rules are those of Kafka's ``LogValidator``: a record without a key on a compacted topic, a timestamp out of bounds.
``UnifiedLog`` compares the size of a batch as it arrives, compressed by the producer, with ``max.message.bytes`` and
with ``segment.bytes``.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from kafka_replication.model.failures import Failure, FailureKind
from kafka_replication.planning.topics.created_topics import AFTER, BEFORE, after_limit, before_limit
from kafka_replication.sinks.port import Record, size_of

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
