"""Plots over time as SVG. Colours come from the page's style sheet, so that they fit both themes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from html import escape
from typing import Final

from kafka_replication.watermarks.sight import Sample

WIDTH, HEIGHT = 420, 140
LEFT, RIGHT, TOP, BOTTOM = 64, 10, 10, 22
BUCKETS: Final = 180
PERIODS: Final = {"day": timedelta(days=1), "month": timedelta(days=31), "year": timedelta(days=366)}
_TICKS: Final = {"day": (4, "%H:%M"), "month": (4, "%d %b"), "year": (4, "%b %Y")}
Value = Callable[[Sample], float | None]


@dataclass(frozen=True, slots=True)
class Point:
    """The value of the time from ``at`` until the next point; None if it is not known."""

    at: datetime
    value: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """One value over a period that ends at ``until``. ``form`` writes a value for people; ``bars`` are for sums."""

    title: str
    period: str
    until: datetime
    points: tuple[Point, ...]
    form: Callable[[float], str]
    bars: bool = False

    @property
    def since(self) -> datetime:
        return self.until - PERIODS[self.period]

    @property
    def highest(self) -> float:
        return max((point.value for point in self.points if point.value is not None), default=0.0)

    @property
    def known(self) -> Sequence[Point]:
        return [point for point in self.points if point.value is not None]

    def svg(self) -> str:
        """The drawing. Its text alternative is the title with the newest and the highest value."""
        newest = self.known[-1].value if self.known else None
        said = "nothing measured" if newest is None else f"now {self.form(newest)}, highest {self.form(self.highest)}"
        parts = [
            f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
            f' aria-label="{escape(f"{self.title}: {said}")}">',
            *self._axes(),
            *(self._bars() if self.bars else self._lines()),
            "</svg>",
        ]
        return "".join(parts)

    def _x(self, at: datetime) -> float:
        share = (at - self.since) / PERIODS[self.period]
        return LEFT + (WIDTH - LEFT - RIGHT) * min(max(share, 0.0), 1.0)

    def _y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value / self.highest if self.highest else 0.0)

    def _axes(self) -> Iterator[str]:
        count, form = _TICKS[self.period]
        for value in {0.0, self.highest}:
            y = self._y(value)
            yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(self.form(value))}</text>'
            yield f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        for number in range(count + 1):
            at = self.since + number * PERIODS[self.period] / count
            anchor = "start" if not number else "end" if number == count else "middle"
            yield f'<text x="{self._x(at):.1f}" y="{HEIGHT - 6}" text-anchor="{anchor}">{at:{form}}</text>'

    def _lines(self) -> Iterator[str]:
        """One line for each stretch of time in which the value is known."""
        stretch = list[str]()
        for point in (*self.points, Point(self.until, None)):
            if point.value is not None:
                stretch.append(f"{self._x(point.at):.1f},{self._y(point.value):.1f}")
            elif stretch:
                if len(stretch) == 1:  # a line of one point is not seen
                    x, y = stretch[0].split(",")
                    yield f'<circle class="line" cx="{x}" cy="{y}" r="1.5"/>'
                yield f'<polyline class="line" points="{" ".join(stretch)}"/>'
                stretch = []

    def _bars(self) -> Iterator[str]:
        width = max(1.0, (WIDTH - LEFT - RIGHT) / BUCKETS - 0.6)
        for point in self.known:
            if point.value:
                y = self._y(point.value)
                yield (
                    f'<rect class="bar" x="{self._x(point.at):.1f}" y="{y:.1f}" width="{width:.1f}"'
                    f' height="{HEIGHT - BOTTOM - y:.1f}"/>'
                )


def points(samples: Sequence[Sample], value: Value, period: str, until: datetime, *, added: bool) -> tuple[Point, ...]:
    """One point for each of `BUCKETS` equal parts of the period: the sum if the values are ``added``, else the largest.

    A sample that is longer than such a part stands in each part that it covers.
    """
    since, part = until - PERIODS[period], PERIODS[period] / BUCKETS
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
