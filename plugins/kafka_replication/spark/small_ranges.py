"""Works on several small ranges at a time in one worker, in threads: a small range mostly waits for the brokers.

A range that fails here, or that is not done in time, is worked on again by itself: then it has all of its time and
attempts, and the others do not wait for it.

Ends the transactions of ranges that were given up. Otherwise readers would wait for their time-out.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any, Generic, TypeVar

from kafka_replication.model.choices import EXACTLY_ONCE
from kafka_replication.model.errors import OutOfTime
from kafka_replication.model.offsets import PartitionKey
from kafka_replication.runtime.deadline import Deadline
from kafka_replication.spark.jobs import Job, RangeResult, RangeTask

log = logging.getLogger(__name__)

AT_ONCE = 8
# A client needs about 2 KB for each partition of a topic, whichever it works on (librdkafka 2.x, measured with 5,000),
# and a range has three clients. With this bound they need about 70 MB in all.
PARTITIONS_KNOWN = 12_000
QUIET = 10.0  # seconds without a result after which those that are there go back
SECONDS = 60.0  # after which they go back in any case
TO_END = 10.0  # seconds that a range has to abort its transaction; one that takes longer is given up
ATTEMPTS = 2  # so that a leader that moves does not end a range's time here
# Prefetch and queue of one range. A record that is too large for them is fetched all the same, and gets a session with
# a queue of its size.
_BUFFERS: dict[str, Any] = {
    "queued.max.messages.kbytes": 4 << 10,
    "fetch.message.max.bytes": 1 << 20,
    "queue.buffering.max.kbytes": 8 << 10,
}
T = TypeVar("T")


def at_once(job: Job, slots: int) -> int:
    """The number of small ranges that each of ``slots`` workers may work on at a time: fewer if a topic of ``job`` has
    very many partitions. ``parallelism`` bounds all together.
    """
    partitions = max((task.key.source.partition + 1 for task in job.tasks), default=1)
    most = max(1, min(AT_ONCE, PARTITIONS_KNOWN // partitions))
    parallelism = job.replication.spark.parallelism
    return most if parallelism is None else min(most, math.ceil(parallelism / slots))


def frugal(job: Job) -> Job:
    """The job with few attempts, and with small client buffers, so that a worker can hold those of `AT_ONCE` ranges.

    Its ranges share the throughput limit of one range.
    """
    source, target = {**_BUFFERS, **job.source}, {**_BUFFERS, **job.target}
    return replace(job.shared(job.together), source=source, target=target, attempts=min(ATTEMPTS, job.attempts))


class BundleWorker(Generic[T]):
    """Works on bundles, one after the other, with at most ``threads`` ranges at a time.

    Each thread borrows ``tools``, which are kept for the next bundle. The work of tools must end when the event is set
    that they were created with. A thread that does not end is abandoned, and ``give_up`` gets its task, to end the
    transaction that may be open.
    """

    def __init__(
        self,
        threads: int,
        tools: Callable[[threading.Event], T],
        work_on: Callable[[T, RangeTask], RangeResult],
        give_up: Callable[[Sequence[RangeTask]], None] = lambda tasks: None,
    ) -> None:
        self._threads, self._make, self._work_on, self._give_up = threads, tools, work_on, give_up
        self._idle: list[tuple[T, threading.Event]] = []
        self._busy: set[threading.Event] = set()
        self.at_work: set[PartitionKey] = set()  # also of earlier bundles, whose threads did not end

    def work(self, tasks: Sequence[RangeTask], quiet: float = QUIET, to_end: float = TO_END) -> list[RangeResult]:
        """The results of the tasks that ended, some with an error.

        No result waits longer than ``quiet`` + ``to_end`` seconds for the next one, and for what giving up takes.
        """
        threads = ThreadPoolExecutor(max(1, min(self._threads, len(tasks))))
        results = [threads.submit(self._one, task) for task in tasks]
        try:
            until, running = time.monotonic() + SECONDS, set(results)
            while running and time.monotonic() < until:  # while some end
                ended, running = wait(running, quiet, FIRST_COMPLETED)
                if not ended:
                    break
        finally:  # also when a signal ends this process: the threads abort their transactions first
            threads.shutdown(wait=False, cancel_futures=True)
            for stop in tuple(self._busy):
                stop.set()
            wait([result for result in results if not result.cancelled()], to_end)
            self._give_up([task for task, result in zip(tasks, results, strict=False) if not result.done()])
        return [result.result() for result in results if result.done() and not result.cancelled()]

    def _one(self, task: RangeTask) -> RangeResult:
        try:
            tools, stop = self._idle.pop()
        except IndexError:
            stop = threading.Event()
            tools = self._make(stop)
        self._busy.add(stop)
        self.at_work.add(task.key)
        try:
            return self._work_on(tools, task)
        finally:
            self._busy.discard(stop)
            self.at_work.discard(task.key)
            if not stop.is_set():
                self._idle.append((tools, stop))


ENDING_SECONDS = 20.0  # for all of them; if the target does not answer, the next session of each range ends them


def end_sessions(job: Job, tasks: Sequence[RangeTask]) -> None:
    """Fence sessions that may still work on these tasks. Call it before the tasks are dealt again, never afterwards."""
    ids = {task.key.transactional_id: str(task.key) for task in tasks if task.copy is not None}
    if not ids or job.replication.delivery != EXACTLY_ONCE:
        return
    for what in ids.values():
        log.warning("%s: its work is given up here; ending the transaction that it may have open", what)
    deadline = Deadline.after(ENDING_SECONDS)
    try:  # not before: a Spark driver that ends no session needs no client
        job.open_target(deadline).end_sessions(ids, lambda: deadline.check("ending transactions"))
    except OutOfTime:
        log.warning(
            "not all of them were ended within %.0f s; the next session of each range ends its own", ENDING_SECONDS
        )
