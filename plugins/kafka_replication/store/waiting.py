"""Waits for a database that is away. This is the one place that repeats calls of the store.

Every call of the store is one transaction, and may be repeated after an unknown outcome without doing its work twice
(`watermarks.store`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar

from kafka_replication.model.errors import Unreachable
from kafka_replication.runtime import stopping

log = logging.getLogger(__name__)
T = TypeVar("T")

PATIENCE: Final = 60.0  # seconds from the first call that failed: a database may be moved to another host
LONGEST_PAUSE: Final = 1.0


class Outage:
    """One store's outage, if there is one. The calls of all threads share its minute, so that a command that has waited
    in vain does not wait again in each of its last steps. A process that was asked to end does not wait.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._given_up = False

    def outlast(self, call: Callable[[], T]) -> T:
        """Call, and repeat the call while the store is away. Raises Unreachable after `PATIENCE` seconds."""
        pause = 0.1
        while True:
            try:
                answer = call()
            except Unreachable as problem:
                left = self._left(problem)
                if not problem.outage or left <= 0:
                    raise
            else:
                self._over()
                return answer
            try:
                time.sleep(min(pause, left))
            except BaseException:  # Ctrl-C, or a signal: a process that ends does not wait
                self._given_up = True
                raise
            pause = min(2 * pause, LONGEST_PAUSE)

    def _left(self, problem: Unreachable) -> float:
        if not problem.outage or self._given_up or stopping.asked():
            return 0.0
        if self._since is None:
            self._since = time.monotonic()
            log.warning("%s; waiting for the store, for at most %.0f s", problem.what, PATIENCE)
        return self._since + PATIENCE - time.monotonic()

    def _over(self) -> None:
        since, self._since, self._given_up = self._since, None, False
        if since is not None:
            log.info("the store answers again, after %.0f s", time.monotonic() - since)
