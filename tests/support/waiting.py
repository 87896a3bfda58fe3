"""Waiting for a condition."""

from __future__ import annotations

import time
from collections.abc import Callable

SAFETY = 300.0  # seconds: no test fails because the machine is slow, but what hangs is named
LONGEST = 0.2  # seconds between two looks, which may each ask a broker: the other tests need the processors


def wait_until(condition: Callable[[], bool], seconds: float = SAFETY) -> None:
    deadline, pause = time.monotonic() + seconds, 0.02
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s in vain"
        time.sleep(pause)
        pause = min(2 * pause, LONGEST)
