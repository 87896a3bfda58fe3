"""The map of one partition: which source offsets were copied when, by which run, and how they were verified."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from kafka_replication.documents import StatusRow
from kafka_replication.model.times import to_text
from kafka_replication.overview.rows import BACKFILL
from kafka_replication.watermarks.sight import CopiedRange

WIDTH, LANE, LEFT = 960, 26, 84
LANES: Final = ("runs", "backfills", "gaps")
_SHORTEST = 1.5  # a range that is shorter on the screen is drawn so long


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
        height = LANE * len(LANES) + 40
        parts = [
            f'<svg class="map" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="map of offsets {self.from_:,} to'
            f' {self.until:,}; the table below has the same" data-from="{self.from_}" data-until="{self.until}"'
            f' data-left="{LEFT / WIDTH:.5f}">',
            *self._lanes(),
            *(self._rect(mark) for mark in self.marks),
            *self._lines(),
            f'<rect class="marked" x="0" y="2" width="0" height="{LANE * len(LANES)}"/>',
            "</svg>",
        ]
        return "".join(parts)

    def _x(self, offset: int) -> float:
        return LEFT + (WIDTH - LEFT - 4) * (offset - self.from_) / (self.until - self.from_)

    def _lanes(self) -> Iterator[str]:
        for number, name in enumerate(LANES):
            y = number * LANE
            yield f'<text x="0" y="{y + 18}">{name}</text>'
            yield f'<rect class="lane" x="{LEFT}" y="{y + 4}" width="{WIDTH - LEFT - 4}" height="{LANE - 6}"/>'

    def _rect(self, mark: Mark) -> str:
        x, end = self._x(mark.from_), self._x(mark.until)
        return (
            f'<rect class="{mark.kind}" x="{x:.1f}" y="{LANES.index(mark.lane) * LANE + 4}"'
            f' width="{max(end - x, _SHORTEST):.1f}" height="{LANE - 6}"><title>{escape(mark.text)}</title></rect>'
        )

    def _lines(self) -> Iterator[str]:
        bottom = LANE * len(LANES)
        for number, (name, at) in enumerate(self.lines):
            x = self._x(at)
            anchor = "start" if x < WIDTH / 3 else "end" if x > 2 * WIDTH / 3 else "middle"
            y = bottom + 12 * (number + 1)
            yield f'<line class="at" x1="{x:.1f}" x2="{x:.1f}" y1="2" y2="{y - 8}"/>'
            yield f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}">{name} {at:,}</text>'
