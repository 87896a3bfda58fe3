"""Places where a test may kill this process. Nothing happens unless ``KAFKA_REPLICATION_FAILPOINT`` names one.

The value is ``NAME`` or ``NAME:N`` (die at the N-th time the point is reached, from 1), and for points that say where
they are ``NAME@WHERE``, such as ``W@orders-3``:
P0 before init_transactions, P1 chunk produced and not committed, P2 commit sent, P3 committed and not reported,
P4 verified and watermark not stored, P5 watermark stored and not reported, W a worker begins to copy or verify a range.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

VARIABLE = "KAFKA_REPLICATION_FAILPOINT"
_reached: Counter[str] = Counter()


def reached(name: str, where: str = "") -> None:
    """Die by SIGKILL here if this point is armed."""
    armed = os.environ.get(VARIABLE)
    if not armed:
        return
    place, _, turn = armed.partition(":")
    point, _, wanted = place.partition("@")
    if point == name and wanted in ("", where):
        _reached[name] += 1
        if _reached[name] == int(turn or 1):
            die()


def die() -> None:
    """A test that cannot spare its process puts something else here."""
    os.kill(os.getpid(), signal.SIGKILL)
