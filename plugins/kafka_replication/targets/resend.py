"""Sends writes again that a target refuses for now, in smaller requests, after pauses that grow."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kafka_replication.model.choices import Failure
from kafka_replication.model.errors import NotReady, Stalled
from kafka_replication.runtime.deadline import NEVER, Deadline, StallClock, backoff

log = logging.getLogger(__name__)
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Item]):
    """The answers about the items of one request: what is sent again and why, and what is refused for ever.

    ``blocked``: a person has to remove the reason.
    """

    again: tuple[Item, ...] = ()
    why: str = ""
    refused: tuple[Failure, ...] = ()
    blocked: bool = False


@dataclass(slots=True, kw_only=True)
class Resend:
    """Sends again what is refused for now, for as long as ``stall_seconds`` pass without an acknowledgement."""

    stall_seconds: float
    deadline: Deadline = NEVER
    pause: Callable[[float], None] = field(default=time.sleep)
    waited: float = 0.0  # seconds in pauses, of all threads that write
    unanswered: bool = False  # a request without an answer was sent again: the first one may still be carried out
    _adding: threading.Lock = field(default_factory=threading.Lock, init=False)

    def write(
        self, where: str, items: Sequence[Item], once: Callable[[Sequence[Item]], Outcome[Item]]
    ) -> tuple[Failure, ...]:
        """Write them all to ``where`` by ``once``, which makes one request. Returns the refused ones.

        Raises Stalled or NotReady, which name what was waited for, and the errors of ``once``.
        """
        left, refused = [tuple(items)] if items else [], list[Failure]()
        clock, failures = StallClock(self.stall_seconds), 0
        while left:
            batch = left.pop()
            outcome = once(batch)
            refused += outcome.refused
            if len(outcome.again) < len(batch):
                clock.moved()
                failures = 0
            if outcome.again:
                failures += 1
                self._wait(where, outcome, clock, failures)
                left += _halves(outcome.again)
        return tuple(refused)

    def _wait(self, where: str, outcome: Outcome[Item], clock: StallClock, failures: int) -> None:
        self.deadline.check(f"writing to {where}: {outcome.why}")
        if clock.is_over():
            what = f"{where} takes nothing for {self.stall_seconds:g} s (copy.stall_timeout): {outcome.why}"
            remedy = "find out what the cluster lacks (disk, memory, what is writable); then it goes on"
            raise (NotReady if outcome.blocked else Stalled)(what, remedy)
        seconds = min(backoff(failures), max(0.1, self.stall_seconds / 4))
        log.warning("%s: %d are sent again in %.1f s: %s", where, len(outcome.again), seconds, outcome.why)
        self.pause(seconds)
        with self._adding:
            self.waited += seconds


def _halves(items: tuple[Item, ...]) -> list[tuple[Item, ...]]:
    middle = (len(items) + 1) // 2
    return [half for half in (items[middle:], items[:middle]) if half]
