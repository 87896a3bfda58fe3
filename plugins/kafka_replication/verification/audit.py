"""Compare what was copied with where it came from, record by record. Decides, and reads nothing itself.

The unit is a chunk: its receipt says which source range lies at which target offsets. Both sides are read once, in the
target's order. Memory is bounded by one chunk (records from its first difference on), whatever the range's length.
"""

from __future__ import annotations

import bisect
import itertools
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from kafka_replication.ledger.entries import Receipt
from kafka_replication.model.offsets import Coverage, OffsetRange


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
    """One chunk's audit: where its records lie, and how. Without a receipt: a stretch of the target that no receipt
    speaks of.
    """

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
        areas = [
            area for each in (*(unit.receipt for _, _, unit in placed), *others) if each and (area := area_of(each))
        ]
        placed += [(each.from_, 0, Unit(each, None)) for each in Coverage.of([window]).subtract(Coverage.of(areas))]
    return [unit for _, _, unit in sorted(placed, key=lambda each: each[:2])]


def area_of(receipt: Receipt) -> OffsetRange | None:
    """The target offsets from a chunk's first record to its last."""
    if not receipt.segments:
        return None
    return OffsetRange(min(each.first for each in receipt.segments), max(each.last for each in receipt.segments) + 1)


def compare(source: Iterator[Seen], target: Iterator[Seen], places: Sequence[int]) -> list[Difference]:
    """What differs between two runs of records that should be the same. Empty without storing anything where nothing
    does.

    ``places`` holds the target offset that the receipt gives the n-th source record.
    """
    for done, (one, other) in enumerate(itertools.zip_longest(source, target)):
        if one is None or other is None or one.digest != other.digest:
            rest = [each for each in (one,) if each], [each for each in (other,) if each]
            return _align([*rest[0], *source], [*rest[1], *target], places[done:])
    return []


def _align(source: Sequence[Seen], target: Sequence[Seen], places: Sequence[int]) -> list[Difference]:
    """Pair equal records; those that are not in order were moved.

    Of the rest, two at one place are one record that was altered.
    """
    where: dict[bytes, deque[int]] = defaultdict(deque)
    for index, each in enumerate(target):
        where[each.digest].append(index)
    pairs = [(index, where[each.digest].popleft()) for index, each in enumerate(source) if where.get(each.digest)]
    in_order = _longest_rising([index for _, index in pairs])
    found = [
        Difference(Kind.MOVED, source[one].offset, target[other].offset)
        for number, (one, other) in enumerate(pairs)
        if number not in in_order
    ]
    paired = {one for one, _ in pairs}, {other for _, other in pairs}
    left = {each.offset: each for index, each in enumerate(target) if index not in paired[1]}
    for index, each in enumerate(source):
        if index not in paired[0]:
            other = left.pop(places[index], None) if index < len(places) else None
            found.append(
                Difference(Kind.ALTERED, each.offset, other.offset)
                if other
                else Difference(Kind.MISSING, each.offset, None, each.digest)
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
