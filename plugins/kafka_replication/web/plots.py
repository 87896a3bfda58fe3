"""Plots over time, as values that uPlot draws in the browser (`static/plots.js`). The texts are made here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from kafka_replication.watermarks.sight import Sample

BUCKETS: Final = 180
PERIODS: Final = {"day": timedelta(days=1), "month": timedelta(days=31), "year": timedelta(days=366)}
_PARTS: Final = 4  # of the time axis
_SHORTEST: Final = timedelta(hours=1)
_TIMES: Final = ((1, "%H:%M"), (8, "%d %b %H:%M"), (62, "%d %b"), (366, "%b %Y"))  # up to so many days
Value = Callable[[Sample], float | None]


@dataclass(frozen=True, slots=True)
class Point:
    """The value of the time from ``at`` until the next point; None if it is not known."""

    at: datetime
    value: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """One value from ``since`` to ``until``. ``form`` writes a value for people; ``bars`` are for sums."""

    title: str
    since: datetime
    until: datetime
    points: tuple[Point, ...]
    form: Callable[[float], str]
    bars: bool = False

    @property
    def highest(self) -> float:
        return max((point.value for point in self.points if point.value is not None), default=0.0)

    @property
    def known(self) -> Sequence[Point]:
        return [point for point in self.points if point.value is not None]

    @property
    def label(self) -> str:
        """The title with the newest and the highest value, for those who do not see the drawing."""
        newest = self.known[-1].value if self.known else None
        said = "nothing measured" if newest is None else f"now {self.form(newest)}, highest {self.form(self.highest)}"
        return f"{self.title}: {said}"

    def drawn(self) -> Mapping[str, Any]:
        """The values with their texts. Times are Unix times. ``up`` and ``along`` are the marks of the axes.

        A value that is not known is None, so that the line has a break there.
        """
        shown = self.until - self.since
        parts = [self.since + number * shown / _PARTS for number in range(_PARTS + 1)]
        form = next(form for days, form in _TIMES if shown <= timedelta(days=days))
        return {
            "bars": self.bars,
            "at": [point.at.timestamp() for point in self.points],
            "values": [point.value for point in self.points],
            "texts": ["not known" if point.value is None else self.form(point.value) for point in self.points],
            "up": [[value, self.form(value)] for value in sorted({0.0, self.highest})],
            "along": [[at.timestamp(), f"{at:{form}}"] for at in parts],
        }


def first_shown(samples: Sequence[Sample], period: str, until: datetime) -> datetime:
    """The begin of the time axis: the period's, or the first of the ``samples`` if that is later."""
    begin = until - PERIODS[period]
    first = min((sample.at for sample in samples), default=begin)
    return max(begin, min(first, until - _SHORTEST))


def points(
    samples: Sequence[Sample], value: Value, since: datetime, until: datetime, *, added: bool
) -> tuple[Point, ...]:
    """One point for each of `BUCKETS` equal parts of this time: the sum if the values are ``added``, else the largest.

    A sample that is longer than such a part stands in each part that it covers.
    """
    part = (until - since) / BUCKETS
    found = list[float | None]([None] * BUCKETS)
    for sample in samples:
        seen = value(sample)
        first = (sample.at - since) // part
        end = sample.at + timedelta(milliseconds=int(sample.span))
        last = first if added else max(first, (end - since - timedelta(milliseconds=1)) // part)
        for number in range(max(first, 0), min(last, BUCKETS - 1) + 1):
            before = found[number]
            if seen is not None:
                found[number] = seen if before is None else before + seen if added else max(before, seen)
    return tuple(Point(since + number * part, each) for number, each in enumerate(found))
