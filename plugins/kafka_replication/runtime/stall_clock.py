"""Measures for how long a number that should fall has not fallen."""

from __future__ import annotations

import math
import time


class StallClock:
    """Measures how long a number that should fall has not fallen; it is over after ``seconds``."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._least = seconds, math.inf
        self._progress = time.monotonic()

    def moved(self) -> None:
        """Begin again: something else shows that it does not stand still."""
        self._progress = time.monotonic()

    def is_over(self, left: float = math.inf) -> bool:
        now = time.monotonic()
        if left < self._least:
            self._least, self._progress = left, now
        return now - self._progress > self._seconds

    def is_old(self, seconds: float) -> bool:
        """True if the number has not fallen for so many seconds."""
        return time.monotonic() - self._progress > seconds
