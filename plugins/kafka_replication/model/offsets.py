"""Offsets, half-open offset ranges, and coverage: the arithmetic everything else stands on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

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
    """The offsets ``from_ <= offset < until``. ``span`` is no record count: markers and compaction leave holes."""

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
        """The offsets in both, or None where there are none."""
        from_, until = max(self.from_, other.from_), min(self.until, other.until)
        return OffsetRange(from_, until) if from_ < until else None


@dataclass(frozen=True, slots=True)
class Coverage:
    """A set of offsets as sorted, disjoint, non-touching ranges; every operation returns a new one."""

    ranges: tuple[OffsetRange, ...] = ()

    @classmethod
    def of(cls, ranges: Iterable[OffsetRange]) -> Coverage:
        """Coalesce ranges given in any order; empty ones vanish."""
        merged: list[OffsetRange] = []
        for each in sorted(each for each in ranges if each.span):
            if merged and each.from_ <= merged[-1].until:
                merged[-1] = OffsetRange(merged[-1].from_, max(merged[-1].until, each.until))
            else:
                merged.append(each)
        return cls(tuple(merged))

    @classmethod
    def decode(cls, pairs: object) -> Coverage:
        """The inverse of `encode`. Raises ValueError for anything that is not a list of pairs."""
        if not isinstance(pairs, list) or not all(
            isinstance(p, list) and list(map(type, p)) == [int, int] for p in pairs
        ):
            raise ValueError(f"not coverage: {pairs!r}")
        return cls.of(OffsetRange(*pair) for pair in pairs)

    def encode(self) -> list[list[int]]:
        return [[each.from_, each.until] for each in self.ranges]

    def __iter__(self) -> Iterator[OffsetRange]:
        return iter(self.ranges)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __str__(self) -> str:
        return " ".join(map(str, self.ranges)) or "nothing"

    @property
    def span(self) -> int:
        return sum(each.span for each in self.ranges)

    def add(self, *others: OffsetRange) -> Coverage:
        return Coverage.of((*self.ranges, *others))

    def union(self, other: Coverage) -> Coverage:
        return self.add(*other.ranges)

    def subtract(self, other: Coverage) -> Coverage:
        """The offsets in this one and not in the other."""
        rest: list[OffsetRange] = []
        for each in self.ranges:
            start = each.from_
            for hole in other.ranges:
                if hole.until <= start or hole.from_ >= each.until:
                    continue
                if hole.from_ > start:
                    rest.append(OffsetRange(start, hole.from_))
                start = max(start, hole.until)
            if start < each.until:
                rest.append(OffsetRange(start, each.until))
        return Coverage.of(rest)

    def within(self, wanted: OffsetRange) -> Coverage:
        """What of ``wanted`` is covered."""
        return Coverage.of(shared for each in self.ranges if (shared := each.intersection(wanted)))

    def missing_from(self, wanted: OffsetRange) -> tuple[OffsetRange, ...]:
        """What of ``wanted`` is not covered, in order."""
        return Coverage.of([wanted]).subtract(self).ranges

    def end_before(self, offset: int) -> int | None:
        """Where the last covered stretch that begins before ``offset`` ends, at ``offset`` at most; None where there is
        none.
        """
        return max((min(each.until, offset) for each in self.ranges if each.from_ < offset), default=None)

    def contains(self, wanted: OffsetRange) -> bool:
        return not self.missing_from(wanted)

    def contiguous_end(self, start: int) -> int:
        """The first offset at or after ``start`` that is not covered."""
        for each in self.ranges:
            if each.from_ <= start < each.until:
                return each.until
        return start
