"""Numbers and times as people read them on a page."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from kafka_replication.model.times import duration

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
