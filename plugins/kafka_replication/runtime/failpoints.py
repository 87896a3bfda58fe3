"""Places where a test may kill or halt this process. Nothing happens unless ``KAFKA_REPLICATION_FAILPOINT`` names one.

The value is ``NAME`` or ``NAME:N``: the process dies when it reaches the point for the N-th time, counted from 1.
``NAME@WHERE``, such as ``W@orders-3``, counts only there; W, T1 and P1 to P3 know where they are. With ``=FILE`` at the
end the process does not die, but makes an empty file ``FILE.reached`` and waits while ``FILE`` exists.

P0 before init_transactions, T1 the target was looked at and nothing is appended yet, P1 chunk produced and not
committed, P2 commit sent, P3 committed and not reported, P4 verified and watermark not stored, P5 watermark stored and
not reported, W a worker begins to copy, verify or audit, AC it has audited a chunk or a piece of a target partition, M1
the ledger no longer has what is hidden or lost on the target, and nothing is shown or dropped yet.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path

from kafka_replication.runtime import stopping

VARIABLE = "KAFKA_REPLICATION_FAILPOINT"
_reached: Counter[str] = Counter()


def reached(name: str, where: str = "") -> None:
    """Die by SIGKILL, or wait, if the variable names this point."""
    armed = os.environ.get(VARIABLE)
    if not armed:
        return
    place, _, gate = armed.partition("=")
    point, _, turn = place.partition(":")
    point, _, wanted = point.partition("@")
    if point == name and wanted in ("", where):
        _reached[name] += 1
        if _reached[name] == int(turn or 1):
            if not gate:
                die()  # a test may have replaced it
                return
            at_gate(Path(gate)).touch()
            while Path(gate).exists():
                if stopping.asked():  # only in the main thread the signal raises an exception
                    raise SystemExit
                time.sleep(0.02)


def forget() -> None:
    """Count from 1 again: for tests that reach a point several times in one process."""
    _reached.clear()


def at_gate(gate: Path) -> Path:
    """The file that is there once a process has reached the point."""
    return gate.with_name(f"{gate.name}.reached")


def die() -> None:
    """Kill this process. A test that runs in the same process replaces this function."""
    os.kill(os.getpid(), signal.SIGKILL)
