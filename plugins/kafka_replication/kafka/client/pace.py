"""Keeps one task below its share of ``copy.throughput_limit``."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

LONGEST_SLEEP = 0.5  # seconds; a signal is handled between two sleeps


class Pace:
    """Counts bytes, and computes the waits that keep them to ``limit`` a second; None is no limit."""

    def __init__(
        self,
        limit: int | None,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._limit, self._now, self._sleep = limit, now, sleep
        self._due = now()  # when everything that was carried was allowed to be

    def spend(self, size: int) -> None:
        """Count ``size`` bytes that were carried."""
        if self._limit is not None:
            self._due = max(self._now(), self._due) + size / self._limit

    @property
    def seconds(self) -> float:
        """The time in seconds to wait before more bytes are carried."""
        return 0.0 if self._limit is None else max(0.0, self._due - self._now())

    def wait(self) -> None:
        """Wait for this time."""
        while left := self.seconds:
            self._sleep(min(left, LONGEST_SLEEP))

    def step(self, size: int) -> int:
        """The bytes to carry at a time: ``size``, or the bytes of half a second if they are fewer."""
        return size if self._limit is None else max(1, min(size, self._limit // 2))


def paced(config: Mapping[str, Any], limit: int | None) -> dict[str, Any]:
    """The settings of a consumer that does not fetch far ahead of its limit. The connection's settings win."""
    if limit is None:
        return dict(config)
    ahead = min(4 << 20, max(64 << 10, limit))
    return {"fetch.message.max.bytes": ahead, "queued.max.messages.kbytes": max(1, ahead >> 10), **config}
