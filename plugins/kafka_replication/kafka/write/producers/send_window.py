"""Bounds what waits for the target's acknowledgement to what the target takes in a few seconds.

Without it, a producer's queue holds 64 MiB whatever the target: at 100 kB/s, eleven minutes of records, more than a
transaction may last; and requests that wait longer than ``socket.timeout.ms`` behind others are sent again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from kafka_replication.sinks.port import Record

FIRST = 128 << 10  # bytes that may wait before the target has acknowledged anything
SAMPLE = 32  # records of a batch from which the size of all is estimated


class SendWindow:
    """Holds a producer back that is too far ahead of the target. It belongs to one session.

    The first acknowledgements show how fast the target is; a fast one is not measured again, as nothing ever waits.
    """

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._now = seconds, now
        self._most = float(FIRST)  # bytes

    @property
    def most(self) -> int:
        """The bytes that may wait, as far as the target was measured."""
        return int(self._most)

    def hold_back(self, batch: Sequence[Record], waiting: Callable[[], int], wait: Callable[[int], None]) -> None:
        """Call ``wait`` until at most half of the window waits, if more than the window does after this batch.

        ``waiting`` is the number of records that are not acknowledged; ``wait`` gets it, and may raise.
        """
        if batch:
            self.drain(max(1.0, mean_size(batch)), waiting, wait)

    def drain(self, size: float, waiting: Callable[[], int], wait: Callable[[int], None]) -> None:
        """The same for what has this ``size`` in bytes, of which ``waiting`` is the number."""
        left = before = waiting()
        if left * size <= self._most:
            return
        started = self._now()
        while left * size > self._most / 2:
            wait(left)
            left = waiting()
        elapsed = max(1e-6, self._now() - started)
        self._most = max(FIRST, (before - left) * size / elapsed * self._seconds)


def mean_size(batch: Sequence[Record]) -> float:
    """The mean size in bytes of keys and values, from some of the records."""
    sample = batch[:: max(1, len(batch) // SAMPLE)]
    return sum(len(key or b"") + len(value or b"") for _, _, key, value, _ in sample) / len(sample)
