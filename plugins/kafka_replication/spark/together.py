"""Several small ranges at a time in one worker, in threads: most of a small range's time is waiting for the brokers.

A range that fails here, or that is not done in time, is worked on again by itself: then it has all of its time and
attempts, and the others do not wait for it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any, Generic, TypeVar

from kafka_replication.spark.jobs import Job, RangeResult, RangeTask

AT_ONCE = 8
SECONDS = 20.0  # after which the results that are there go back
ATTEMPTS = 2  # so that a leader that moves does not end a range's time here
# Prefetch and queue of one range; a record that is too large for them is copied when its range is alone.
_BUFFERS: dict[str, Any] = {
    "queued.max.messages.kbytes": 4 << 10,
    "fetch.message.max.bytes": 1 << 20,
    "queue.buffering.max.kbytes": 8 << 10,
}
T = TypeVar("T")


def frugal(job: Job) -> Job:
    """The job with few attempts, and with client buffers of which a worker can hold `AT_ONCE` times as many."""
    return replace(
        job,
        settings=job.settings.model_copy(update={"attempts": min(ATTEMPTS, job.settings.attempts)}),
        source={**_BUFFERS, **job.source},
        target={**_BUFFERS, **job.target},
    )


class Together(Generic[T]):
    """Works on bundles, one after the other, with at most ``threads`` ranges at a time.

    Each thread borrows ``tools``, which are kept for the next bundle. They must end their work when the event is set
    that they were made with.
    """

    def __init__(
        self, threads: int, tools: Callable[[threading.Event], T], work_on: Callable[[T, RangeTask], RangeResult]
    ) -> None:
        self._threads, self._make, self._work_on = threads, tools, work_on
        self._idle: queue.SimpleQueue[T] = queue.SimpleQueue()
        self._stop = threading.Event()

    def work(self, tasks: Sequence[RangeTask], seconds: float = SECONDS) -> list[RangeResult]:
        """The results of the tasks that were begun. Those that were not done after ``seconds`` have an error."""
        self._stop.clear()
        with ThreadPoolExecutor(max(1, min(self._threads, len(tasks)))) as threads:
            results = [threads.submit(self._one, task) for task in tasks]
            try:
                wait(results, seconds)
            finally:  # also when a signal ends this process: the threads abort their transactions first
                for result in results:
                    result.cancel()
                self._stop.set()
        return [result.result() for result in results if not result.cancelled()]

    def _one(self, task: RangeTask) -> RangeResult:
        try:
            tools = self._idle.get_nowait()
        except queue.Empty:
            tools = self._make(self._stop)
        try:
            return self._work_on(tools, task)
        finally:
            self._idle.put(tools)
