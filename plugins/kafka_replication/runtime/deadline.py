"""One deadline for a run. It limits every wait and retry. Work on a range also ends if the range does not move."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception

from kafka_replication.model.errors import Busy, NoProgress, OutOfTime, ReplicationError

log = logging.getLogger(__name__)
T = TypeVar("T")
LONGEST_PAUSE = 5.0
# Attempts in a row that get no further. Whatever moves outlasts an outage of 40 minutes: each is a new session, and the
# pauses grow to `LONGEST_PAUSE`. A range that stands still ends before that.
ATTEMPTS = 500
Exhausted = Callable[[str, int, ReplicationError], ReplicationError]  # of what was done, how often, and the last error


class StallClock:
    """Measures how long nothing has moved, or how long a number that should fall has not fallen; it is over after
    ``seconds``, at the time ``at`` of the monotonic clock.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds, self._least = seconds, math.inf
        self.moved()

    def moved(self) -> None:
        """Begin again: a chunk was committed or verified, or something else shows that it does not stand still."""
        self.at = time.monotonic() + self.seconds

    def is_over(self, left: float = math.inf) -> bool:
        if left < self._least:
            self._least = left
            self.moved()
        return time.monotonic() > self.at

    def is_old(self, seconds: float) -> bool:
        """True if nothing has moved for so many seconds."""
        return time.monotonic() - (self.at - self.seconds) > seconds


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time when a run must end, on the monotonic clock, because a wall clock may jump. The default is never.

    Once ``stop`` is set, no time is left. With a ``clock``, the work also ends when that is over.
    """

    at: float = math.inf
    stop: threading.Event | None = None
    clock: StallClock | None = None

    @classmethod
    def after(cls, seconds: float | None, stop: threading.Event | None = None) -> Deadline:
        return cls(math.inf if seconds is None else time.monotonic() + seconds, stop)

    def while_moving(self, seconds: float) -> Deadline:
        """This deadline for one range. The range is given up after ``seconds`` without a call of `moved`."""
        return replace(self, clock=StallClock(seconds))

    def moved(self) -> None:
        """The range moved. Does nothing without a clock."""
        if self.clock is not None:
            self.clock.moved()

    @property
    def left(self) -> float:
        """The seconds left, at least 0."""
        if self.stop is not None and self.stop.is_set():
            return 0.0
        return max(0.0, min(self.at, math.inf if self.clock is None else self.clock.at) - time.monotonic())

    @property
    def seconds(self) -> float | None:
        """The seconds left of the run's time, in the form for another process: None means no deadline."""
        return None if math.isinf(self.at) else max(0.0, self.at - time.monotonic())

    def within(self, seconds: float) -> float:
        """``seconds``, or the time left if that is shorter."""
        return min(seconds, self.left)

    def check(self, doing: str, last: ReplicationError | None = None) -> None:
        """Raises OutOfTime or NoProgress if no time is left. The error names the current action and the last error."""
        if not self.left:
            raise self.over(doing, last)

    def check_stopped(self, doing: str) -> None:
        """Raises OutOfTime once the work was stopped. When only the time is used up, begun work may still be ended."""
        if self.stop is not None and self.stop.is_set():
            raise self.over(doing)

    def over(self, doing: str, last: ReplicationError | None = None) -> OutOfTime | NoProgress:
        """The error to raise at the end: NoProgress if the clock is over first, else OutOfTime."""
        stopped = self.stop is not None and self.stop.is_set()
        if self.clock is None or stopped or self.at <= self.clock.at:
            return out_of_time(doing, last)
        return NoProgress(
            f"{doing}: nothing was committed or verified for {self.clock.seconds:.0f} s, so this run gives"
            f" the range up{_last(last)}",
            (f"{last.remedy}; " if last and last.remedy else "")
            + "the next run tries again, after the last commit; if the range only needs longer, let fewer of them share"
            " the network (spark.parallelism), or raise copy.throughput_limit",
        )


def out_of_time(doing: str, last: ReplicationError | None = None) -> OutOfTime:
    """The run's time is used up while it did this."""
    return OutOfTime(
        f"{doing}: the run's time (timeouts.run) is used up{_last(last)}",
        (
            f"{last.remedy}; then run again: the next run continues where this one stopped"
            if last and last.remedy
            else "run again: the next run continues where this one stopped; or raise timeouts.run"
        ),
    )


def _last(error: ReplicationError | None) -> str:
    return f"; the last error was: {error.what}" if error else ""


NEVER = Deadline()


def backoff(failures: int) -> float:
    """The pause in seconds after this many failures in a row: 0.4, 0.8, 1.6, 3.2, then 5."""
    return min(LONGEST_PAUSE, 0.2 * float(2 ** min(failures, 10)))


def retry(
    doing: str,
    call: Callable[[], T],
    deadline: Deadline,
    attempts: int,
    *,
    patience: float = math.inf,
    exhausted: Exhausted | None = None,
    pause: Callable[[float], None] = time.sleep,
    progress: Callable[[], object] = lambda: None,
) -> T:
    """Call, and retry on retriable errors with backoff: at most ``attempts`` times in a row.

    The count, and the deadline's clock, restart whenever ``progress`` returns another value than after the previous
    failure. `Busy` is never retried, because work must stop when the lease is lost; neither is `NoProgress`. Raises
    the last error after the last attempt, or what ``exhausted`` makes of it, or after ``patience`` seconds; or
    OutOfTime or NoProgress if the deadline comes before the next attempt.
    """
    failures, before, patient = 0, progress(), Deadline.after(patience)

    def wait(_: RetryCallState) -> float:
        """The pause in seconds. Tenacity calls this once after each failure."""
        nonlocal failures, before
        if (now := progress()) != before:
            failures, before = 0, now
            deadline.moved()
        failures += 1
        return backoff(failures)

    def give_up(state: RetryCallState) -> T:
        error = _error(state)
        assert error is not None
        if failures >= attempts:
            if exhausted is None:
                raise error
            raise exhausted(doing, failures, error) from error
        if patient.left <= state.upcoming_sleep:
            raise error
        raise deadline.over(doing, error) from error

    def warn(state: RetryCallState) -> None:
        error = _error(state)
        log.warning("%s: attempt %d of %d failed (%s); trying again", doing, failures, attempts, error)

    return Retrying(
        retry=retry_if_exception(is_passing),
        wait=wait,
        stop=lambda state: failures >= attempts or min(deadline.left, patient.left) <= state.upcoming_sleep,
        sleep=pause,
        before_sleep=warn,
        retry_error_callback=give_up,
    )(call)


def is_passing(error: BaseException) -> bool:
    """True if the call may succeed later, so that the caller may repeat it."""
    return isinstance(error, ReplicationError) and error.retriable and not isinstance(error, Busy | NoProgress)


def _error(state: RetryCallState) -> ReplicationError | None:
    error = state.outcome.exception() if state.outcome else None
    return error if isinstance(error, ReplicationError) else None
