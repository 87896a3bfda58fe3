"""Offsets, half-open offset ranges, coverage, and their arithmetic.

The key of a position, receipt or watermark, and the names derived from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import xxhash

MAX_OFFSET = 2**63 - 1


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One partition of one topic, printed as Kafka's logs do: ``orders-3``."""

    topic: str
    partition: int

    def __post_init__(self) -> None:
        if not self.topic or not 0 <= self.partition < 2**31:
            raise ValueError(f"not a topic-partition: {self.topic!r}, {self.partition}")

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The offsets ``from_ <= offset < until``. ``span`` is not a record count: there are control records and holes."""

    from_: int
    until: int

    def __post_init__(self) -> None:
        if not 0 <= self.from_ <= self.until <= MAX_OFFSET:
            raise ValueError(f"not an offset range: [{self.from_}, {self.until})")

    @property
    def span(self) -> int:
        return self.until - self.from_

    def __contains__(self, offset: int) -> bool:
        return self.from_ <= offset < self.until

    def __str__(self) -> str:
        return f"[{self.from_}, {self.until})"

    def intersection(self, other: OffsetRange) -> OffsetRange | None:
        """The offsets in both ranges, or None if there are none."""
        from_, until = max(self.from_, other.from_), min(self.until, other.until)
        return OffsetRange(from_, until) if from_ < until else None


def readable(start: int, end: int) -> OffsetRange:
    """The offsets that can be read of a log. The ``start`` may have passed the ``end``: then there are none."""
    return OffsetRange(min(start, end), end)


@dataclass(frozen=True, slots=True)
class Coverage:
    """A set of offsets as sorted, disjoint, non-touching ranges. Every operation returns a new set."""

    ranges: tuple[OffsetRange, ...] = ()

    @classmethod
    def of(cls, ranges: Iterable[OffsetRange]) -> Coverage:
        """Merge ranges given in any order, and drop empty ones."""
        merged: list[OffsetRange] = []
        for range_ in sorted(range_ for range_ in ranges if range_.span):
            if merged and range_.from_ <= merged[-1].until:
                merged[-1] = OffsetRange(merged[-1].from_, max(merged[-1].until, range_.until))
            else:
                merged.append(range_)
        return cls(tuple(merged))

    @classmethod
    def decode(cls, pairs: object) -> Coverage:
        """The inverse of `encode`. Raises ValueError for anything that `encode` does not return."""
        if not isinstance(pairs, list) or not all(
            isinstance(p, list) and list(map(type, p)) == [int, int] for p in pairs
        ):
            raise ValueError(f"not coverage: {pairs!r}")
        decoded = cls.of(OffsetRange(*pair) for pair in pairs)
        if decoded.encode() != pairs:
            raise ValueError(f"not coverage, whose ranges are in order and do not overlap: {pairs!r}")
        return decoded

    def encode(self) -> list[list[int]]:
        return [[range_.from_, range_.until] for range_ in self.ranges]

    def __iter__(self) -> Iterator[OffsetRange]:
        return iter(self.ranges)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __contains__(self, offset: int) -> bool:
        return any(offset in range_ for range_ in self.ranges)

    def __str__(self) -> str:
        return " ".join(map(str, self.ranges)) or "nothing"

    @property
    def span(self) -> int:
        return sum(range_.span for range_ in self.ranges)

    def add(self, *others: OffsetRange) -> Coverage:
        return Coverage.of((*self.ranges, *others)) if others else self

    def union(self, other: Coverage) -> Coverage:
        return self.add(*other.ranges)

    def subtract(self, other: Coverage) -> Coverage:
        """The offsets in this set that are not in the other."""
        if not self.ranges or not other.ranges:
            return self
        rest: list[OffsetRange] = []
        for range_ in self.ranges:
            start = range_.from_
            for hole in other.ranges:
                if hole.until <= start or hole.from_ >= range_.until:
                    continue
                if hole.from_ > start:
                    rest.append(OffsetRange(start, hole.from_))
                start = max(start, hole.until)
            if start < range_.until:
                rest.append(OffsetRange(start, range_.until))
        return Coverage.of(rest)

    def intersection(self, other: Coverage) -> Coverage:
        """The offsets in both sets."""
        return Coverage.of(shared for range_ in other.ranges for shared in self.within(range_))

    def within(self, wanted: OffsetRange) -> Coverage:
        """The part of ``wanted`` that is covered."""
        return Coverage.of(shared for range_ in self.ranges if (shared := range_.intersection(wanted)))

    def missing_from(self, wanted: OffsetRange) -> tuple[OffsetRange, ...]:
        """The parts of ``wanted`` that are not covered, in order."""
        return Coverage.of([wanted]).subtract(self).ranges

    def end_before(self, offset: int) -> int | None:
        """The end of the last range that begins before ``offset``, at most ``offset``; None without such a range."""
        return max((min(range_.until, offset) for range_ in self.ranges if range_.from_ < offset), default=None)

    def contains(self, wanted: OffsetRange) -> bool:
        return not self.missing_from(wanted)

    def contiguous_end(self, start: int) -> int:
        """The first offset at or after ``start`` that is not covered."""
        for range_ in self.ranges:
            if range_.from_ <= start < range_.until:
                return range_.until
        return start


LEDGER_PARTITIONS = 16
PREFIX = "kafka-replication"


def consumer_group(replication: str) -> str:
    """The consumers' group id. They commit nothing to the group, but brokers require the right to read it."""
    return f"{PREFIX}/{replication}"


def opening_id(replication: str) -> str:
    """The transactional id that commits the start offsets of new partitions."""
    return f"{PREFIX}/{replication}/opening"


def verified_id(replication: str) -> str:
    """The transactional id that commits what is verified."""
    return f"{PREFIX}/{replication}/verified"


def check_id(replication: str) -> str:
    """The transactional id that only asks whether the replication may use ids of its prefix. It never has a record."""
    return f"{PREFIX}/{replication}/check"


def replication_of(transactional_id: str) -> str:
    """The replication whose transactional id this is; empty if it is none of ours."""
    parts = transactional_id.split("/")
    return parts[1] if len(parts) > 2 and parts[0] == PREFIX else ""


def transactional_prefix(replication: str) -> str:
    """The beginning of every transactional id of the replication."""
    return f"{PREFIX}/{replication}/"


def dump(value: Any) -> bytes:
    """Canonical JSON: sorted keys, no blanks, UTF-8. Equal values give equal bytes in every release."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass(frozen=True, slots=True, order=True)
class PartitionKey:
    """Identifies one copied partition, across runs, ranges and attempts. It has one transactional id."""

    replication: str
    source: TopicPartition
    target_topic: str

    def __str__(self) -> str:
        return f"{self.replication}: {self.source} -> {self.target_topic}"

    @property
    def target(self) -> TopicPartition:
        return TopicPartition(self.target_topic, self.source.partition)

    @property
    def transactional_id(self) -> str:
        """Unique for each key, because no name contains a slash."""
        return f"{PREFIX}/{self.replication}/{self.source.topic}/{self.source.partition}/{self.target_topic}"

    @property
    def ledger_partition(self) -> int:
        """The partition of both ledger topics that holds this key's entries: xxh32 of the key, stable for ever."""
        return int(xxhash.xxh32_intdigest(dump(self._parts())) % LEDGER_PARTITIONS)

    def _parts(self) -> list[str | int]:
        return [self.replication, self.source.topic, self.source.partition, self.target_topic]

    def entry(self, kind: str, *more: int) -> bytes:
        """The record key of an entry: ``[kind, replication, source topic, source partition, target topic, ...]``."""
        return dump([kind, *self._parts(), *more])
