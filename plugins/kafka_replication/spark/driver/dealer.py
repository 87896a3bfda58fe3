"""Deals a job's tasks to Spark. Each is a Spark job, so that none ends with another one. Small ones share a job."""

from __future__ import annotations

import logging
import math
import queue
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace

from pyspark import SparkContext

from kafka_replication.model.keys import PartitionKey
from kafka_replication.runtime import background
from kafka_replication.spark.driver.application import Application
from kafka_replication.spark.failures import EXECUTOR_LACKS_MODULE, EXECUTOR_LACKS_PYTHON, GAVE_UP
from kafka_replication.spark.jobs import (
    BUNDLE,
    JOB,
    RESULTS,
    Bundle,
    Job,
    JobEnd,
    RangeResult,
    RangeTask,
    bundles,
    died,
)
from kafka_replication.spark.worker.giving_up import end_sessions
from kafka_replication.spark.worker.small_ranges import AT_ONCE

log = logging.getLogger(__name__)
LOOK = 1.0  # seconds between two looks at whether Spark's application has ended
MISSING = "missing:"  # an answer of this form names a module that the worker could not import
# After this many aborts in a row without a result, the cause lies in the workers, not in single tasks.
MOST_ABORTS = 5
# On a cluster, more tasks at a time than this would not make Spark ask for more executors sooner.
MOST_AT_A_TIME = 256


class Aborted(Exception):
    """Spark gave up one task, because its worker died in every attempt."""


class GaveUp(Exception):
    """No task can run any more, because of ``end``."""

    def __init__(self, end: JobEnd) -> None:
        super().__init__(end.error)
        self.end = end


_ABORTED = re.compile(r"Task \d+ in stage \S+ failed \d+ times")
# The program is missing, is no Python with this module, or one of another version.
_NO_PYTHON = re.compile(r'Cannot run program "|reading the port number from \S+\'s stdout|PYTHON_VERSION_MISMATCH')
_ERROR = re.compile(r"^(?:: )?([\w.]+(?:Error|Exception|Exit)\b.*)$", re.MULTILINE)


def cause_of(text: str) -> str:
    """The cause in a long Java and Python trace: the last line that names an error."""
    return (_ERROR.findall(text) or text.strip().splitlines() or ["no reason given"])[-1][:500]


def run(context: SparkContext, job: Job, deliver: Callable[[RangeResult], None]) -> JobEnd:
    """Run every task of the job, and ``deliver`` each result as soon as it is there, from several threads.

    A job without tasks only finds out whether a worker can run one.
    """
    slots = _slots(context, job)
    common = JOB.dump_json(replace(job.shared(slots).common, together=_together(job, slots)))
    work = _work(common, job.needed)

    application = Application(context)

    def run_one(bundle: Bundle) -> list[RangeResult]:
        try:
            rdd = context.parallelize([BUNDLE.dump_json(bundle)], 1).mapPartitions(work)
            answer = str(rdd.collect()[0])
        except Exception as e:  # Py4JJavaError for errors of Spark, others if the context is gone
            raise _error(str(e)) from e
        if answer.startswith(MISSING):
            raise GaveUp(missing(answer.removeprefix(MISSING)))
        return RESULTS.validate_json(answer)

    dealer = Dealer(
        bundles(job.tasks, slots) or [[]], run_one, deliver, application.end, lambda tasks: end_sessions(job, tasks)
    )
    return dealer.deal(slots)


def _error(text: str) -> Exception:
    """The error for the tasks that wait for a Spark job with this text."""
    if _NO_PYTHON.search(text):
        return GaveUp(JobEnd.of(EXECUTOR_LACKS_PYTHON, cause_of(text)))
    return (Aborted if _ABORTED.search(text) else RuntimeError)(cause_of(text))


def _slots(context: SparkContext, job: Job) -> int:
    """The number of Spark jobs that run at a time."""
    # Shares of a limit that are dealt to tasks which only wait for an executor would be lost.
    is_counted = (context.master or "").startswith("local") or job.settings.throughput_limit is not None
    processors = context.defaultParallelism if is_counted else MOST_AT_A_TIME
    return max(1, min(len(job.tasks), job.parallelism or processors))


def _together(job: Job, slots: int) -> int:
    """The number of small ranges that each Spark job may work on at a time. ``parallelism`` bounds all together."""
    return AT_ONCE if job.parallelism is None else min(AT_ONCE, math.ceil(job.parallelism / slots))


class Dealer:
    """Deals the bundles in their order to threads, each of which runs one bundle at a time.

    If a task failed in a bundle, or Spark aborted its bundle, the task runs again by itself; only that result counts.
    If Spark aborts a single task, the task runs alone at the end: the death of an executor ends all tasks on it, also
    those that did not cause it. If it is aborted again, its result is an error. ``give_up`` gets the aborted tasks
    before they are dealt again: the transactions of dead workers would hide the ledger from the other tasks.
    """

    def __init__(
        self,
        dealt: Iterable[Bundle],
        run_one: Callable[[Bundle], list[RangeResult]],
        deliver: Callable[[RangeResult], None],
        ended: Callable[[], JobEnd | None] = lambda: None,
        give_up: Callable[[Sequence[RangeTask]], None] = lambda tasks: None,
    ) -> None:
        self._run_one, self._deliver, self._ended, self._give_up = run_one, deliver, ended, give_up
        self._bundles = queue.SimpleQueue[Bundle]()
        for bundle in dealt:
            self._bundles.put(bundle)
        self._begun: dict[PartitionKey, RangeResult] = {}  # of tasks that failed in a bundle
        self._set_aside: list[RangeTask] = []
        self._aborts, self._lock = 0, threading.Lock()
        self._end: JobEnd | None = None

    def deal(self, at_a_time: int) -> JobEnd:
        self._await([background.begin(self._work, "deal") for _ in range(at_a_time)])
        if self._set_aside and self._end is None:
            self._await([background.begin(self._work_single, "deal")])
        return self._end or JobEnd()

    def _await(self, futures: list[Future[None]]) -> None:
        """Wait until all are done. If Spark's application has ended, Spark may never answer for some of them."""
        while wait(futures, LOOK).not_done:
            if (end := self._ended()) is not None:
                wait(futures, LOOK)  # for the answers that have arrived already
                self._end = end
                return
        for future in futures:
            future.result()

    def _work_single(self) -> None:
        for task in self._set_aside:
            if self._end is None:
                self._run([task], self._died)

    def _died(self, bundle: Bundle, cause: str) -> None:
        self._give_up(bundle)
        self._hand_over(died(bundle[0], cause))

    def _work(self) -> None:
        while self._end is None:
            try:
                bundle = self._bundles.get_nowait()
            except queue.Empty:
                return
            self._run(bundle, self._aborted)

    def _run(self, bundle: Bundle, aborted: Callable[[Bundle, str], None]) -> None:
        try:
            results = self._run_one(bundle)
        except Aborted as e:
            aborted(bundle, str(e))
        except GaveUp as e:
            self._end = e.end
        except RuntimeError as e:
            log.exception("Spark gave up")
            self._end = JobEnd.of(GAVE_UP, str(e))
        else:
            self._aborts = 0
            self._take(bundle, results)

    def _take(self, bundle: Bundle, results: list[RangeResult]) -> None:
        """Deliver the finished results. The unfinished tasks of a bundle become single tasks."""
        final = (one for one in results if len(bundle) == 1 or one.fenced or one.at_work or not one.failed)
        done = {result.key for result in final}
        for result in results:
            if result.key in done:
                self._hand_over(result)
            else:
                self._begun[result.key] = result
        self._deal_single(task for task in bundle if task.key not in done)

    def _hand_over(self, result: RangeResult) -> None:
        begun = self._begun.get(result.key)
        self._deliver(result.joined_to(begun) if begun else result)

    def _deal_single(self, tasks: Iterable[RangeTask]) -> None:
        for task in tasks:
            self._bundles.put([task])

    def _aborted(self, bundle: Bundle, cause: str) -> None:
        names = ", ".join(str(task.key.source) for task in bundle)
        log.warning("%s: the worker ended in every attempt (%s); the others go on", names, cause)
        self._give_up(bundle)
        with self._lock:
            if not bundle:
                self._end = JobEnd(error=f"Spark gave up: {cause}")
            elif len(bundle) > 1:
                self._deal_single(bundle)
            else:
                self._set_aside += bundle
            self._aborts += 1
            if self._aborts >= MOST_ABORTS:
                self._end = JobEnd.of(GAVE_UP, cause)


def _work(common: bytes, needed: tuple[str, ...]) -> Callable[[Iterable[bytes]], Iterable[str]]:
    """The function that an executor runs. A Spark task gets the part that all tasks share, and its own bundle.

    It checks the imports (``needed``) before it uses anything of this package, so that it can name a missing module.
    """
    prefix = MISSING

    def work(bundles: Iterable[bytes]) -> Iterable[str]:
        import importlib
        import socket
        import sys

        try:
            for name in needed:
                importlib.import_module(name)
        except ImportError as e:
            return [f"{prefix}{sys.executable} on {socket.gethostname()} cannot import {e.name or ''} ({e})"]
        from kafka_replication.spark.worker.worker import execute

        return [execute(common, bundle) for bundle in bundles]

    return work


def missing(what: str) -> JobEnd:
    return JobEnd.of(EXECUTOR_LACKS_MODULE, what)
