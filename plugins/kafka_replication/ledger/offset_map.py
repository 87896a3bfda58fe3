"""Offsets that the ledger keeps so that the place of a group can be translated: for a chunk the source offsets that
have a record on the target, for a copy of another tool the places of its records.

A chunk without holes needs no map: its n-th offset is its n-th record. Holes are control records, aborted and compacted
records, and those that a filter dropped or that were set aside. They are written down while the chunk is copied:
nothing can tell them later, because the source may compact what it has.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, ClassVar, Final

from pydantic import ConfigDict

from kafka_replication.ledger.values import STRICT, Number
from kafka_replication.model.errors import LedgerUnreadable
from kafka_replication.model.offsets import OffsetRange

# Characters of a map in a receipt. Where one in ten records is missing at random, 300,000 records take 33,000.
MOST: Final = 32 << 10
_FIRST_STEP: Final = 64
MOST_ADOPTED: Final = 4 << 10  # characters; a position has them, and is written with each chunk


@dataclass(frozen=True, slots=True)
class OffsetMap:
    """The source offsets of the records that a chunk wrote, in their order.

    ``numbers`` are whole numbers of seven bits a byte, deflated, in base64. With ``every`` 1 they are pairs: offsets
    without a record, then offsets with one, from the first offset of the chunk on. With a larger one, which takes less
    room, they are the distances between the offsets of the records number 0, ``every``, 2 * ``every`` and so on.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    numbers: str
    every: Number = 1

    def runs(self, chunk: OffsetRange) -> Iterator[OffsetRange] | None:
        """The source offsets that have a record, in order; None if they are not known. Raises LedgerUnreadable."""
        if self.every > 1:
            return None
        firsts, untils, _ = _runs(self.numbers)
        return (OffsetRange(chunk.from_ + a, chunk.from_ + b) for a, b in zip(firsts, untils, strict=True))

    def before(self, chunk: int, offset: int) -> tuple[int, int]:
        """The least and the most records that the chunk has before this source offset: the same number twice if that is
        known. ``chunk`` is its first offset. Raises LedgerUnreadable.
        """
        if self.every == 1:
            firsts, untils, counts = _runs(self.numbers)
            run = bisect_right(firsts, offset - chunk) - 1
            exact = 0 if run < 0 else counts[run] - max(0, untils[run] - (offset - chunk))
            return exact, exact
        passed = bisect_left(_samples(self.numbers), offset - chunk)
        return (passed - 1) * self.every + 1 if passed else 0, passed * self.every


class WrittenOffsets:
    """Takes the source offsets of the records that a chunk writes, in their order."""

    __slots__ = ("_runs", "count")

    def __init__(self) -> None:
        self._runs = list[tuple[int, int]]()  # first offset, and one past the last
        self.count = 0

    def add(self, offsets: Sequence[int]) -> None:
        if not offsets:
            return
        if offsets[-1] - offsets[0] + 1 == len(offsets):
            self._add(offsets[0], offsets[-1] + 1)
        else:
            for offset in offsets:
                self._add(offset, offset + 1)
        self.count += len(offsets)

    def add_records(self, records: Sequence[tuple[int, Any, Any, Any, Any]]) -> None:
        """``records`` begin with their offset each. Where there is no hole, this costs nothing for a record."""
        if not records:
            return
        dense = records[-1][0] - records[0][0] + 1 == len(records)
        self.add(range(records[0][0], records[-1][0] + 1) if dense else [record[0] for record in records])

    def _add(self, first: int, until: int) -> None:
        if self._runs and self._runs[-1][1] == first:
            first = self._runs.pop()[0]
        self._runs.append((first, until))

    def map(self, chunk: int, until: int) -> OffsetMap | None:
        """The map of a chunk of the offsets ``chunk <= offset < until``; None if it has a record at each, or none at
        all. It is exact unless it would be larger than `MOST`.
        """
        if self.count in (0, until - chunk):
            return None
        exact, before = list[int](), chunk
        for first, end in self._runs:
            exact += (first - before, end - first)
            before = end
        numbers, every = _text(exact), 1
        while len(numbers) > MOST:
            every = max(_FIRST_STEP, 2 * every)
            numbers = _text(self._distances(chunk, every))
        return OffsetMap(numbers, every)

    def _distances(self, chunk: int, every: int) -> Iterator[int]:
        before, passed = chunk, 0  # records before this run
        for first, end in self._runs:
            for offset in range(first + -passed % every, end, every):
                yield offset - before
                before = offset
            passed += end - first


@dataclass(frozen=True, slots=True)
class AdoptedRun:
    """Records of a copy that lie one behind the other on both sides: of the source offsets ``source <= offset <
    source + count``, from the target offset ``target`` on. Every record behind them at the source lies behind them on
    the target, too. Who goes on in them reads at most ``again`` records there that he has read before.
    """

    source: int
    target: int
    count: int
    again: int

    def place(self, offset: int) -> int:
        """The place for this source offset, which is not before the run."""
        return self.target + min(offset - self.source, self.count)


@dataclass(frozen=True, slots=True)
class AdoptedPlaces:
    """The runs of a copy that another tool made, as far as records prove them. ``numbers`` are those of the runs in
    their order, written as in `OffsetMap`: the source offsets and the target offsets since the run before, its records,
    and ``again``.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    numbers: str

    @classmethod
    def of(cls, runs: Sequence[AdoptedRun]) -> AdoptedPlaces | None:
        """``runs`` ascend. The last ones are kept, if not all have room; None without a run."""
        while runs:
            numbers, source, target = list[int](), 0, 0
            for run in runs:
                numbers += run.source - source, run.target - target, run.count, run.again
                source, target = run.source + run.count, run.target + run.count
            if len(text := _text(numbers)) <= MOST_ADOPTED:
                return cls(text)
            runs = runs[len(runs) // 4 + 1 :]
        return None

    @property
    def runs(self) -> Sequence[AdoptedRun]:
        """All runs, in their order. Raises LedgerUnreadable."""
        return _adopted_runs(self.numbers)

    def run(self, offset: int) -> AdoptedRun | None:
        """The last run that begins at or before this source offset; None if none does. Raises LedgerUnreadable."""
        runs = self.runs
        number = bisect_right(runs, offset, key=lambda run: run.source)
        return runs[number - 1] if number else None


def _text(numbers: Iterable[int]) -> str:
    out = bytearray()
    for number in numbers:
        while number > 0x7F:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        out.append(number)
    return b64encode(zlib.compress(out)).decode()


def _decoded(text: str) -> Iterator[int]:
    try:
        data = zlib.decompress(b64decode(text, validate=True))
    except (ValueError, zlib.error) as e:
        raise LedgerUnreadable(f"the offset map of a receipt is damaged: {e}", "copy its offsets again") from e
    number = shift = 0
    for byte in data:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number
            number = shift = 0


@lru_cache(maxsize=256)
def _runs(text: str) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    """The first offset of each run, one past its last, and the records up to its end; offsets count from the chunk's
    first one.
    """
    ends = list(accumulate(_decoded(text)))
    untils, firsts = ends[1::2], ends[::2]
    return firsts, untils, list(accumulate(until - first for first, until in zip(firsts, untils, strict=True)))


@lru_cache(maxsize=256)
def _adopted_runs(text: str) -> Sequence[AdoptedRun]:
    runs, source, target = list[AdoptedRun](), 0, 0
    numbers = _decoded(text)
    for to_source, to_target, count, again in zip(numbers, numbers, numbers, numbers, strict=True):
        runs.append(AdoptedRun(source + to_source, target + to_target, count, again))
        source, target = runs[-1].source + count, runs[-1].target + count
    return runs


@lru_cache(maxsize=256)
def _samples(text: str) -> Sequence[int]:
    return list(accumulate(_decoded(text)))
