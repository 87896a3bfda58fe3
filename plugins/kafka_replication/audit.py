"""Compare what was copied with where it came from, record by record, whenever somebody asks; decides, and reads nothing itself.

The unit is a chunk: its receipt says which source range lies at which target offsets. Both sides are read once, in the target's
order. Memory is bounded by one chunk (records from its first difference on) and by `LISTED`, whatever the range's length.
"""

from __future__ import annotations

import bisect
import itertools
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from kafka_replication.gaps import ApprovedGap
from kafka_replication.keys import PartitionKey
from kafka_replication.ledger import Receipt
from kafka_replication.offsets import Coverage, OffsetRange
from kafka_replication.report import table

REPORT_FORMAT = 1
LISTED = 100_000  # differing records remembered by offset for one partition; further ones are only counted


class Kind(StrEnum):
    """What may be wrong with a record."""

    MISSING = "missing"  # on the source, not on the target
    EXTRA = "extra"  # on the target, and nothing on the source speaks for it: doubled or foreign
    MOVED = "moved"  # on both sides, at another place than the others around it
    ALTERED = "altered"  # at its place, with other content


class Seen(NamedTuple):
    """One record, as read: its offset there, and the digest of its content."""

    offset: int
    digest: bytes


class Difference(NamedTuple):
    """One record that differs. ``source`` or ``target`` is None where that side has none."""

    kind: Kind
    source: int | None
    target: int | None
    digest: bytes = b""


@dataclass(frozen=True, slots=True)
class Unit:
    """One chunk's audit: where its records lie, and how. Without a receipt: a stretch of the target that no receipt speaks of."""

    target: OffsetRange | None  # None: the chunk put nothing on the target
    receipt: Receipt | None


def units(chosen: Iterable[Receipt], others: Iterable[Receipt], window: OffsetRange | None) -> list[Unit]:
    """The chunks to audit and the stretches of ``window`` that are nobody's, in the target's order."""
    placed: list[tuple[int, int, Unit]] = []
    after = 0
    for receipt in sorted(chosen, key=lambda each: each.range):
        area = area_of(receipt)
        after = area.from_ if area else after
        placed.append((after, 1, Unit(area, receipt)))
    if window is not None:
        areas = [area for each in (*(unit.receipt for _, _, unit in placed), *others) if each and (area := area_of(each))]
        placed += [(each.from_, 0, Unit(each, None)) for each in Coverage.of([window]).subtract(Coverage.of(areas))]
    return [unit for _, _, unit in sorted(placed, key=lambda each: each[:2])]


def area_of(receipt: Receipt) -> OffsetRange | None:
    """The target offsets from a chunk's first record to its last."""
    if not receipt.segments:
        return None
    return OffsetRange(min(each.first for each in receipt.segments), max(each.last for each in receipt.segments) + 1)


def compare(source: Iterator[Seen], target: Iterator[Seen], places: Sequence[int]) -> list[Difference]:
    """What differs between two runs of records that should be the same. Empty without storing anything where nothing does.

    ``places`` holds the target offset that the receipt gives the n-th source record.
    """
    for done, (one, other) in enumerate(itertools.zip_longest(source, target)):
        if one is None or other is None or one.digest != other.digest:
            rest = [each for each in (one,) if each], [each for each in (other,) if each]
            return _align([*rest[0], *source], [*rest[1], *target], places[done:])
    return []


def _align(source: Sequence[Seen], target: Sequence[Seen], places: Sequence[int]) -> list[Difference]:
    """Pair equal records; those that are not in order were moved. Of the rest, two at one place are one record that was altered."""
    where: dict[bytes, deque[int]] = defaultdict(deque)
    for index, each in enumerate(target):
        where[each.digest].append(index)
    pairs = [(index, where[each.digest].popleft()) for index, each in enumerate(source) if where.get(each.digest)]
    in_order = _longest_rising([index for _, index in pairs])
    found = [
        Difference(Kind.MOVED, source[one].offset, target[other].offset)
        for number, (one, other) in enumerate(pairs) if number not in in_order
    ]  # fmt: skip
    paired = {one for one, _ in pairs}, {other for _, other in pairs}
    left = {each.offset: each for index, each in enumerate(target) if index not in paired[1]}
    for index, each in enumerate(source):
        if index not in paired[0]:
            other = left.pop(places[index], None) if index < len(places) else None
            found.append(
                Difference(Kind.ALTERED, each.offset, other.offset) if other else Difference(Kind.MISSING, each.offset, None, each.digest)
            )
    return found + [Difference(Kind.EXTRA, None, each.offset, each.digest) for each in left.values()]


def _longest_rising(numbers: Sequence[int]) -> set[int]:
    """The indices of a longest rising subsequence: patience sorting, n log n."""
    tails: list[int] = []  # the smallest last number of a rising run of each length
    ends: list[int] = []  # its index
    before: list[int] = []
    for index, number in enumerate(numbers):
        length = bisect.bisect_left(tails, number)
        before.append(ends[length - 1] if length else -1)
        if length == len(tails):
            tails.append(number)
            ends.append(index)
        else:
            tails[length], ends[length] = number, index
    chosen, index = set[int](), ends[-1] if ends else -1
    while index >= 0:
        chosen.add(index)
        index = before[index]
    return chosen


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive records that differ in the same way."""

    kind: Kind
    source: OffsetRange | None
    target: OffsetRange | None
    count: int

    def __str__(self) -> str:
        places = [f"{side} {each}" for side, each in (("source", self.source), ("target", self.target)) if each]
        return f"{self.kind} {', '.join(places)}: {self.count} record{'s' if self.count > 1 else ''}"

    def as_json(self) -> dict[str, Any]:
        pair = {side: [each.from_, each.until] if each else None for side, each in (("source", self.source), ("target", self.target))}
        return {"kind": str(self.kind), **pair, "count": self.count}


@dataclass(slots=True)
class PartitionAudit:
    """What the audit of one partition found, growing as it goes.

    ``by_content`` and ``by_receipt`` are source offsets: compared with the source's records, or, where the source no longer has
    them, with what the receipt says. ``not_at_source`` counts records whose receipt vouches for them and that the source has lost.
    """

    key: PartitionKey
    generation: int
    range: OffsetRange
    chunks: int = 0
    source_records: int = 0
    target_records: int = 0
    by_content: int = 0
    by_receipt: int = 0
    not_at_source: int = 0
    lost: tuple[ApprovedGap, ...] = ()
    counts: dict[Kind, int] = field(default_factory=lambda: dict.fromkeys(Kind, 0))
    unlisted: int = 0
    notes: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    _single: list[Difference] = field(default_factory=list)
    _whole: list[Stretch] = field(default_factory=list)

    def differ(self, found: Iterable[Difference]) -> None:
        for each in found:
            self.counts[each.kind] += 1
            if len(self._single) < LISTED:
                self._single.append(each)
            else:
                self.unlisted += 1

    def differ_by_receipt(self, receipt: Receipt, count: int) -> None:
        """The target has ``count`` records that are not as the receipt says, and the source can no longer tell which."""
        missing = receipt.count - count
        kind = Kind.MISSING if missing > 0 else Kind.EXTRA if missing < 0 else Kind.ALTERED
        self.counts[kind] += abs(missing) or 1
        self._whole.append(Stretch(kind, receipt.range, area_of(receipt), abs(missing) or 1))

    def finish(self) -> None:
        """A record that is missing at one place and extra at another was moved, over whatever distance."""
        missing: dict[bytes, deque[int]] = defaultdict(deque)
        for index, each in enumerate(self._single):
            if each.kind is Kind.MISSING:
                missing[each.digest].append(index)
        gone = set[int]()
        for index, each in enumerate(self._single):
            if each.kind is Kind.EXTRA and missing.get(each.digest):
                twin = missing[each.digest].popleft()
                gone.add(twin)
                self._single[index] = Difference(Kind.MOVED, self._single[twin].source, each.target)
                self.counts[Kind.MISSING] -= 1
                self.counts[Kind.EXTRA] -= 1
                self.counts[Kind.MOVED] += 1
        self._single = [each for index, each in enumerate(self._single) if index not in gone]

    @property
    def outcome(self) -> str:
        """``clean``, ``differs`` or ``failed`` (it could not be audited to the end)."""
        return "failed" if self.errors else "differs" if any(self.counts.values()) else "clean"

    @property
    def stretches(self) -> list[Stretch]:
        """All listed differences, coalesced."""
        found = list(self._whole)
        order = sorted(self._single, key=lambda each: (each.kind, each.source is None, each.source or 0, each.target or 0))
        for _, group in itertools.groupby(enumerate(order), key=_run):
            first, *more = (each for _, each in group)
            last = more[-1] if more else first
            found.append(Stretch(first.kind, _span(first.source, last.source), _span(first.target, last.target), len(more) + 1))
        return found

    def as_json(self, limit: int | None = None) -> dict[str, Any]:
        """The stable interface of the report file; with ``limit`` it lists no more stretches than that."""
        stretches = self.stretches
        listed = stretches[:limit]
        unlisted = self.unlisted + sum(each.count for each in stretches[len(listed) :])
        return {
            "topic": self.key.source.topic, "partition": self.key.source.partition, "target_topic": self.key.target_topic,
            "generation": self.generation, "from": self.range.from_, "until": self.range.until, "outcome": self.outcome,
            "chunks": self.chunks, "source_records": self.source_records, "target_records": self.target_records,
            "by_content": self.by_content, "by_receipt": self.by_receipt, "not_at_source": self.not_at_source,
            **{str(kind): count for kind, count in self.counts.items()},
            "differences": [each.as_json() for each in listed], "unlisted": unlisted,
            "lost": [each.as_json() for each in self.lost], "notes": self.notes, "errors": self.errors,
        }  # fmt: skip


def _run(numbered: tuple[int, Difference]) -> tuple[Kind, int | None, int | None]:
    """Equal for neighbours: both offsets rise by one with the number."""
    number, each = numbered
    return each.kind, None if each.source is None else each.source - number, None if each.target is None else each.target - number


def _span(first: int | None, last: int | None) -> OffsetRange | None:
    return None if first is None or last is None else OffsetRange(first, last + 1)


@dataclass(frozen=True, slots=True)
class AuditReport:
    """``outcome`` is ``clean``, ``differs`` or ``failed``."""

    replication: str
    run_id: str
    time: str
    partitions: tuple[PartitionAudit, ...]

    @property
    def outcome(self) -> str:
        found = {each.outcome for each in self.partitions}
        return "failed" if "failed" in found else "differs" if "differs" in found else "clean"

    def as_json(self, limit: int | None = None) -> dict[str, Any]:
        """``limit`` bounds the stretches listed for each partition."""
        return {
            "format": REPORT_FORMAT, "replication": self.replication, "run_id": self.run_id, "time": self.time, "outcome": self.outcome,
            "partitions": [each.as_json(limit) for each in self.partitions],
        }  # fmt: skip

    def text(self) -> str:
        """As a person reads it: a line a partition, then what differs, at most ten stretches each."""
        head = ("partition", "range", "chunks", "source", "target", "by content", "by receipt", *map(str, Kind), "outcome")
        rows = [
            (
                str(each.key.source), str(each.range), str(each.chunks), str(each.source_records), str(each.target_records),
                str(each.by_content), str(each.by_receipt), *map(str, each.counts.values()), each.outcome,
            )
            for each in self.partitions
        ]  # fmt: skip
        return "\n".join([table([head, *rows]), *(line for each in self.partitions for line in _lines(each))])


def _lines(each: PartitionAudit) -> Iterator[str]:
    stretches = each.stretches
    for stretch in stretches[:10]:
        yield f"DIFFERS {each.key.source} {stretch}"
    if len(stretches) > 10 or each.unlisted:
        yield f"  and more of {each.key.source}: --report writes all of them to a file"
    yield from (f"FAILED {each.key.source} {error}" for error in each.errors)
    yield from (f"{each.key.source} {note}" for note in each.notes)
    yield from map(str, each.lost)
