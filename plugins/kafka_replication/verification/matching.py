"""Matches the records that were sent with those that are seen on the target. This module decides; it does not read.

Records are equal if their digests are. Both sides are read once, side by side; while they are equal nothing is stored.
"""

from __future__ import annotations

import bisect
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, zip_longest
from typing import NamedTuple, TypeVar


class Sent(NamedTuple):
    """A record that was sent, or that would be: the source offset from which it was made, the digest of its content,
    and the target offset that its receipt gives; None if that is not known.
    """

    offset: int
    digest: bytes
    place: int | None = None


class Seen(NamedTuple):
    """A record that is on the target: its offset there, and the digest of its content."""

    place: int
    digest: bytes


class Kind(StrEnum):
    """A difference of a record between source and target."""

    MISSING = "missing"  # on the source, not on the target
    EXTRA = "extra"  # on the target, without a source record: a duplicate, or written by another producer
    MOVED = "moved"  # on both sides, but in another order
    ALTERED = "altered"  # at the expected offset, with other content


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
class Matched:
    """The difference between what was sent and what is seen. Each side's records are in its order.

    ``moved`` has pairs of equal records, as few as possible: the others are in one order on both sides.
    """

    lost: Sequence[Sent]
    extra: Sequence[Seen]
    moved: Sequence[tuple[Sent, Seen]] = ()

    def differences(self) -> list[Difference]:
        """The differences, one for each record. A lost record is altered if an extra one lies at its place."""
        left = {record.place: record for record in self.extra}
        differences = [Difference(Kind.MOVED, one.offset, other.place) for one, other in self.moved]
        for record in self.lost:
            other = None if record.place is None else left.pop(record.place, None)
            differences.append(
                Difference(Kind.ALTERED, record.offset, other.place)
                if other
                else Difference(Kind.MISSING, record.offset, None, record.digest)
            )
        return differences + [Difference(Kind.EXTRA, None, record.place, record.digest) for record in left.values()]


T = TypeVar("T")
Record = TypeVar("Record", Sent, Seen)
Numbered = tuple[int, T]  # in the order of its side
Waiting = defaultdict[bytes, deque[Numbered[T]]]  # records without a pair, by digest


def match(sent: Iterable[Sent], seen: Iterable[Seen], *, ordered: bool) -> Matched:
    """Pair equal records, and return those that have no pair.

    Records that are equal side by side are a pair, and of others the first of one side and the first of the other. If
    ``ordered``, all from the first difference on are paired in the second way, and pairs in another order are moved.

    Memory is needed for the differences, and for as many records as the sides are shifted against each other; if
    ``ordered``, for all records from the first difference on.
    """
    lost, extra = Waiting[Sent](deque), Waiting[Seen](deque)
    pairs: list[tuple[Numbered[Sent], Numbered[Seen]]] = []
    is_equal = True  # so far
    for number, (one, other) in enumerate(zip_longest(sent, seen)):
        if one is not None and other is not None and one.digest == other.digest and (is_equal or not ordered):
            continue
        is_equal = False
        if one is not None and (equal_seen := _partner(number, one, extra, lost)) and ordered:
            pairs.append(((number, one), equal_seen))
        if other is not None and (equal_sent := _partner(number, other, lost, extra)) and ordered:
            pairs.append((equal_sent, (number, other)))
    pairs.sort()
    # Moved are those that are in the order of the sent ones, and not in that of the seen ones.
    rising = _longest_rising([number for _, (number, _) in pairs])
    moved = [(one, other) for index, ((_, one), (_, other)) in enumerate(pairs) if index not in rising]
    return Matched(_in_order(lost), _in_order(extra), moved)


def attribute(extra: Iterable[Seen], sources: Iterable[Sent]) -> tuple[list[int], list[Seen]]:
    """For each of these target records the first source offset with its content, and the records of which the source
    has none. ``sources`` is read until all are found.
    """
    wanted: dict[bytes, list[Seen]] = defaultdict(list)
    for record in extra:
        wanted[record.digest].append(record)
    origins: list[int] = []
    for source in sources if wanted else ():
        origins += [source.offset] * len(wanted.pop(source.digest, ()))
        if not wanted:
            break
    return origins, sorted(chain.from_iterable(wanted.values()))


def join_moved(differences: Sequence[Difference]) -> list[Difference]:
    """The same differences, but a record that is missing at one place and extra at another was moved, whatever the
    distance.
    """
    missing = Waiting[Difference](deque)
    for number, difference in enumerate(differences):
        if difference.kind is Kind.MISSING:
            missing[difference.digest].append((number, difference))
    joined = dict(enumerate(differences))
    for number, difference in enumerate(differences):
        if difference.kind is Kind.EXTRA and (equal := _first(missing, difference.digest)):
            joined[number] = difference._replace(kind=Kind.MOVED, source=equal[1].source)
            del joined[equal[0]]
    return list(joined.values())


def _partner(number: int, record: Record, others: Waiting[T], own: Waiting[Record]) -> Numbered[T] | None:
    """The first of the ``others`` with the content of this record, which waits among its ``own`` if there is none."""
    if (equal := _first(others, record.digest)) is None:
        own[record.digest].append((number, record))
    return equal


def _first(waiting: Waiting[T], digest: bytes) -> Numbered[T] | None:
    """Take the first record with this content out of those that wait for a pair; None if there is none."""
    if (same := waiting.get(digest)) is None:
        return None
    first = same.popleft()
    if not same:
        del waiting[digest]
    return first


def _in_order(waiting: Waiting[T]) -> list[T]:
    return [record for _, record in sorted(chain.from_iterable(waiting.values()), key=lambda numbered: numbered[0])]


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
