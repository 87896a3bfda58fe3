"""Moments as Kafka and the store have them, in milliseconds since the epoch: the only place that converts them."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def from_millis(millis: int) -> datetime:
    """UTC from milliseconds since the epoch, without a float's rounding."""
    return EPOCH + timedelta(milliseconds=millis)


def floor_millis(moment: datetime) -> int:
    """The last whole millisecond that is not after ``moment``."""
    return (moment - EPOCH) // _MILLISECOND


def ceil_millis(moment: datetime) -> int:
    """The first whole millisecond that is not before ``moment``: a record not before 0.5 ms has the timestamp 1 ms or
    later.
    """
    return -((EPOCH - moment) // _MILLISECOND)


def to_text(moment: datetime) -> str:
    """RFC 3339 in UTC, to the second, as messages show it."""
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def now() -> str:
    """This moment as RFC 3339 UTC, to the millisecond."""
    return datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
