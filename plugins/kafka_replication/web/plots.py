"""Plots over time, as values that uPlot draws in the browser (`static/plots.js`). The texts are made here.

The map of one partition: which source offsets were copied when, by which run, and how they were verified.

Numbers and times as people read them on a page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from html import escape
from typing import Any, Final

from kafka_replication.documents import StatusRow
from kafka_replication.model.times import duration, to_text
from kafka_replication.overview.rows import BACKFILL
from kafka_replication.watermarks.sight import CopiedRange, Sample

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


WIDTH, LANE, LEFT = 960, 26, 84
LANES: Final = ("runs", "backfills", "gaps")
_SHORTEST_BAR = 1.5  # a range that is shorter on the screen is drawn so long


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One range on the map. ``kind`` is its class in the style sheet, ``text`` what it says."""

    lane: str
    from_: int
    until: int
    kind: str
    text: str


def judged(range_: CopiedRange) -> tuple[str, str]:
    """The class of a range and the sentence about it: failed, verified, or copied and not reported yet."""
    outcome = range_.outcome
    if outcome.error:
        return "failed", f"failed: {outcome.error}"
    if outcome.level == "":
        return "copied", "copied; the run has not reported it yet"
    return "verified", f"verified by {outcome.level}"


def marks(ranges: Sequence[CopiedRange], row: StatusRow | None) -> list[Mark]:
    """Oldest first, so that a newer one lies above."""
    found = list[Mark]()
    for each in reversed(ranges):
        outcome = each.outcome
        kind, sentence = judged(each)
        when = f" at {to_text(outcome.recorded_at)}" if outcome.recorded_at else ""
        found.append(
            Mark(
                lane="backfills" if each.kind == BACKFILL else "runs",
                from_=outcome.range.from_,
                until=outcome.range.until,
                kind=kind,
                text=f"{outcome.range}: {outcome.copied:,} records copied by run {outcome.run_id}{when}, {sentence}",
            )
        )
    for gap in row.gaps if row else ():
        text = f"{gap.range}: given up by {gap.approved_by} at {gap.time}: {gap.reason}"
        found.append(Mark(lane="gaps", from_=gap.from_, until=gap.until, kind="gap", text=text))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeMap:
    """The drawing. Offsets from ``from_`` to ``until`` are on it; ``lines`` are single offsets with their names."""

    from_: int
    until: int
    marks: tuple[Mark, ...]
    lines: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, ranges: Sequence[CopiedRange], row: StatusRow | None) -> RangeMap:
        found = marks(ranges, row)
        named = {
            "log start": row.log_start if row else None,
            "watermark": row.watermark if row else None,
            "source end": row.source_end if row else None,
        }
        lines = tuple((name, at) for name, at in named.items() if at is not None)
        ends = [*(mark.from_ for mark in found), *(mark.until for mark in found), *(at for _, at in lines)]
        from_, until = min(ends, default=0), max(ends, default=1)
        return cls(from_=from_, until=max(until, from_ + 1), marks=tuple(found), lines=lines)

    def svg(self) -> str:
        """The drawing; the table below it is its text alternative. A script reads the offsets that it stands for."""
        bottom, width = LANE * len(LANES), WIDTH - LEFT - 4
        parts = [
            f'<svg class="map" viewBox="0 0 {WIDTH} {bottom + 40}" role="img" aria-label="map of offsets'
            f' {self.from_:,} to {self.until:,}; the table below has the same" data-from="{self.from_}"'
            f' data-until="{self.until}" data-left="{LEFT / WIDTH:.5f}">'
        ]

        def x_of(offset: int) -> float:
            return LEFT + width * (offset - self.from_) / (self.until - self.from_)

        for number, name in enumerate(LANES):
            y = number * LANE
            parts.append(f'<text x="0" y="{y + 18}">{name}</text>')
            parts.append(f'<rect class="lane" x="{LEFT}" y="{y + 4}" width="{width}" height="{LANE - 6}"/>')
        for mark in self.marks:
            x, y = x_of(mark.from_), LANES.index(mark.lane) * LANE + 4
            size = f'width="{max(x_of(mark.until) - x, _SHORTEST_BAR):.1f}" height="{LANE - 6}"'
            title = f"<title>{escape(mark.text)}</title>"
            parts.append(f'<rect class="{mark.kind}" x="{x:.1f}" y="{y}" {size}>{title}</rect>')
        for number, (name, offset) in enumerate(self.lines):
            x, y = x_of(offset), bottom + 12 * (number + 1)
            anchor = "start" if x < WIDTH / 3 else "end" if x > 2 * WIDTH / 3 else "middle"
            parts.append(f'<line class="at" x1="{x:.1f}" x2="{x:.1f}" y1="2" y2="{y - 8}"/>')
            parts.append(f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}">{name} {offset:,}</text>')
        return "".join([*parts, f'<rect class="marked" x="0" y="2" width="0" height="{bottom}"/>', "</svg>"])


NOT_KNOWN: Final = "–"  # noqa: RUF001 - a dash
DAY_SECONDS: Final = 86_400


def count(value: int | None) -> str:
    """A whole number with thousands set apart."""
    return NOT_KNOWN if value is None else f"{value:,}"


def short(value: float) -> str:
    """A number in few characters: ``1.2 M``."""
    for unit, name in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if value >= unit:
            return f"{value / unit:.1f} {name}"
    return f"{value:.0f}"


def span(seconds: float | None) -> str:
    """A time span in its largest unit, from seconds."""
    if seconds is None:
        return NOT_KNOWN
    if seconds == 0:
        return "0 s"
    return f"{seconds / DAY_SECONDS:.1f} days" if seconds >= 2 * DAY_SECONDS else duration(seconds)


def ago(moment: datetime, now: datetime) -> str:
    """The time since a moment, or until one to come."""
    seconds = (now - moment).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{span(seconds)} ago" if seconds > 0 else f"in {span(-seconds)}"


def clock(moment: datetime) -> str:
    """The moment in UTC, to the second."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
