"""Converts times to and from milliseconds since the epoch, the form that Kafka and the store use, and to text.

Sizes in bytes, as text for people.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
DAY_MILLIS: Final = 86_400_000


def from_millis(millis: int) -> datetime:
    """UTC from milliseconds since the epoch, without a float's rounding."""
    return EPOCH + timedelta(milliseconds=millis)


def floor_millis(moment: datetime) -> int:
    """The last whole millisecond that is not after ``moment``."""
    return (moment - EPOCH) // _MILLISECOND


def ceil_millis(moment: datetime) -> int:
    """The first whole millisecond that is not before ``moment``. For 0.5 ms it is 1 ms, the first record
    timestamp that is not earlier.
    """
    return -((EPOCH - moment) // _MILLISECOND)


def to_text(moment: datetime) -> str:
    """RFC 3339 in UTC, to the second, for messages."""
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def duration(seconds: float) -> str:
    """The time in the largest unit that is precise enough: ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def now(before: float = 0) -> str:
    """The current time, or so many seconds before it, as RFC 3339 in UTC, to the millisecond."""
    return exactly(datetime.fromtimestamp(time.time() - before, UTC))


def exactly(moment: datetime) -> str:
    """A time in UTC as RFC 3339, to the millisecond: Kafka's records have no more."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def amount(size: float) -> str:
    """Bytes in the largest unit that fits, with one decimal: ``1.2 MB``."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:,.1f} {name}"
    return f"{size:,.0f} bytes"
