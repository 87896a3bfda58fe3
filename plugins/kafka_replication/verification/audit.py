"""Compare the copied records with the source records, one by one. This module decides; it does not read Kafka.

The unit is a chunk: its receipt maps a source range to target offsets. Source and target are read once, in the target's
order. Memory is bounded by one chunk (its records from the first difference on), whatever the length of the range.
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
    """A difference of a record between source and target."""

    MISSING = "missing"  # on the source, not on the target
    EXTRA = "extra"  # on the target, without a source record: a duplicate, or written by another producer
    MOVED = "moved"  # on both sides, but in another order
    ALTERED = "altered"  # at the expected offset, with other content


class Seen(NamedTuple):
    """One record as it was read, or as a transform makes it of the record at this source offset: the offset on that
    side, and the digest of its content.
    """

    offset: int
    digest: bytes


class Difference(NamedTuple):
    """One record that differs. ``source`` and ``target`` are offsets; None where that side does not have the record.

    ``partition`` is the target's, where the records of one source partition lie in several.
    """

    kind: Kind
    source: int | None
    target: int | None
    digest: bytes = b""
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of an audit: a chunk with its receipt, or (without a receipt) target offsets of no receipt."""

    target: OffsetRange | None  # None: the chunk wrote no record to the target
    receipt: Receipt | None


def units(
    chosen: Iterable[Receipt],
    others: Iterable[Receipt],
    window: OffsetRange | None,
    retried: Iterable[OffsetRange] = (),
    without: OffsetRange | None = None,
) -> list[Unit]:
    """The chunks to audit, and the offsets of ``window`` that belong to no receipt, in the target's order. ``retried``
    are target offsets of records that were copied after their chunk. Those ``without`` are audited in another way.
    """
    placed: list[tuple[int, int, Unit]] = []
    after = 0
    for receipt in sorted(chosen, key=lambda receipt: receipt.range):
        area = area_of(receipt)
        after = area.from_ if area else after
        placed.append((after, 1, Unit(area, receipt)))
    if window is not None:
        receipts = (*(unit.receipt for _, _, unit in placed if unit.receipt), *others)
        ours = claimed(receipts).add(*retried, *([without] if without else []))
        placed += [(left.from_, 0, Unit(left, None)) for left in Coverage.of([window]).subtract(ours)]
    return [unit for _, _, unit in sorted(placed, key=lambda entry: entry[:2])]


def claimed(receipts: Iterable[Receipt]) -> Coverage:
    """The target offsets of these receipts, which are all about one target partition."""
    return Coverage.of(range_ for receipt in receipts for part in receipt.parts for range_ in part.offsets)


def area_of(receipt: Receipt) -> OffsetRange | None:
    """The target offsets from a chunk's first record to its last; None without records, or in several partitions."""
    if len({part.partition for part in receipt.parts}) != 1:
        return None
    return OffsetRange(min(part.first for part in receipt.parts), max(part.until for part in receipt.parts))


def compare(source: Iterator[Seen], target: Iterator[Seen], places: Sequence[int]) -> list[Difference]:
    """The differences between two sequences of records that should be equal.

    Equal sequences are compared without storing any record. ``source`` is what the copier writes of the source's
    records. ``places[n]`` is the target offset that the receipt gives for the n-th of them.
    """
    for done, (one, other) in enumerate(itertools.zip_longest(source, target)):
        if one is None or other is None or one.digest != other.digest:
            source_rest, target_rest = [one] if one else [], [other] if other else []
            return _align([*source_rest, *source], [*target_rest, *target], places[done:])
    return []


def _align(source: Sequence[Seen], target: Sequence[Seen], places: Sequence[int]) -> list[Difference]:
    """Pair equal records. Pairs that are out of order count as moved.

    A source record and a target record that have no pair but share an offset count as one altered record.
    """
    where: dict[bytes, deque[int]] = defaultdict(deque)
    for index, record in enumerate(target):
        where[record.digest].append(index)
    pairs = [(index, where[record.digest].popleft()) for index, record in enumerate(source) if where.get(record.digest)]
    in_order = _longest_rising([index for _, index in pairs])
    differences = [
        Difference(Kind.MOVED, source[one].offset, target[other].offset)
        for number, (one, other) in enumerate(pairs)
        if number not in in_order
    ]
    paired = {one for one, _ in pairs}, {other for _, other in pairs}
    left = {record.offset: record for index, record in enumerate(target) if index not in paired[1]}
    for index, record in enumerate(source):
        if index not in paired[0]:
            other = left.pop(places[index], None) if index < len(places) else None
            differences.append(
                Difference(Kind.ALTERED, record.offset, other.offset)
                if other
                else Difference(Kind.MISSING, record.offset, None, record.digest)
            )
    return differences + [Difference(Kind.EXTRA, None, record.offset, record.digest) for record in left.values()]


def _longest_rising(numbers: Sequence[int]) -> set[int]:
    """The indices of a longest rising subsequence: patience sorting, n log n."""
    tails: list[int] = []  # the smallest last number of a rising sequence of each length
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
