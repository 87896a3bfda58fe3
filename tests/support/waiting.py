"""Waiting for a condition."""

from __future__ import annotations

import time
from collections.abc import Callable

SAFETY = 300.0  # seconds: no test fails because the machine is slow, but what hangs is named


def wait_until(condition: Callable[[], bool], seconds: float = SAFETY) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s in vain"
        time.sleep(0.05)
