"""One budget of time for a run: every wait asks it how long it may take, and repeats what may pass by itself within
it.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from kafka_replication.model.errors import Busy, OutOfTime, ReplicationError

log = logging.getLogger(__name__)
T = TypeVar("T")
LONGEST_PAUSE = 5.0


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a run has to end, on this process's own clock: a host's wall clock may jump. The default never comes."""

    at: float = math.inf

    @classmethod
    def after(cls, seconds: float | None) -> Deadline:
        return cls() if seconds is None else cls(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Seconds, not below 0."""
        return max(0.0, self.at - time.monotonic())

    @property
    def seconds(self) -> float | None:
        """What is left, as another process takes it; None for ever."""
        return None if math.isinf(self.at) else self.left

    def within(self, seconds: float) -> float:
        """A wait of ``seconds``, or what is left of the run."""
        return min(seconds, self.left)

    def check(self, doing: str, last: ReplicationError | None = None) -> None:
        """Raises OutOfTime, naming what was going on and the last error."""
        if not self.left:
            raise self.over(doing, last)

    def over(self, doing: str, last: ReplicationError | None = None) -> OutOfTime:
        return OutOfTime(
            f"{doing}: the run's time (timeouts.run) is used up"
            + (f"; the last error was: {last.what}" if last else ""),
            (
                f"{last.remedy}; then run again: it goes on where this stopped"
                if last and last.remedy
                else "run again, it goes on where this stopped; or raise timeouts.run"
            ),
        )


NEVER = Deadline()


def backoff(failures: int) -> float:
    """The pause in seconds after so many failures in a row: 0.4, 0.8, 1.6, 3.2, then 5."""
    return min(LONGEST_PAUSE, 0.2 * float(2 ** min(failures, 10)))


def patiently(
    doing: str, call: Callable[[], T], deadline: Deadline, attempts: int, pause: Callable[[float], None] = time.sleep
) -> T:
    """``call``, again after each error that may pass by itself. A lost lease is none: the work under it has to stop."""
    for failures in range(1, attempts + 1):
        try:
            return call()
        except Busy:
            raise
        except ReplicationError as e:
            if not e.retriable or failures == attempts:
                raise
            if deadline.left <= backoff(failures):
                raise deadline.over(doing, e) from e
            log.warning("%s: attempt %d of %d failed (%s); trying again", doing, failures, attempts, e)
            pause(backoff(failures))
    raise AssertionError("attempts is at least 1")
