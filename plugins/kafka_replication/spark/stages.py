"""Deals a job's tasks to Spark one by one: each is a Spark job of its own, so that none ends with another."""

from __future__ import annotations

import logging
import queue
import re
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from pyspark import SparkContext

from kafka_replication.spark.jobs import JOB, RESULT, TASK, Job, JobEnd, RangeResult, RangeTask, died

log = logging.getLogger(__name__)
NEEDED = ("confluent_kafka", "xxhash", "pydantic", "tenacity", "kafka_replication.kafka.engines.record.engine")
MISSING = "missing:"  # an answer of this form names a module that the worker could not import
# After this many aborts in a row without a result, the cause lies in the workers, not in single tasks.
MOST_ABORTS = 5
# On a cluster, more tasks at a time than this would not make Spark ask for more executors sooner.
MOST_AT_A_TIME = 256


class Aborted(Exception):
    """Spark gave up one task, because its worker died in every attempt."""


class GaveUp(Exception):
    """No task can run any more: ``end`` says why."""

    def __init__(self, end: JobEnd) -> None:
        super().__init__(end.error)
        self.end = end


_ABORTED = re.compile(r"Task \d+ in stage \S+ failed \d+ times")
_ERROR = re.compile(r"^(?:: )?([\w.]+(?:Error|Exception|Exit)\b.*)$", re.MULTILINE)


def cause_of(text: str) -> str:
    """The line of a long Java and Python trace that says why: the last line that names an error."""
    return (_ERROR.findall(text) or text.strip().splitlines() or ["no reason given"])[-1][:500]


def run(context: SparkContext, job: Job, deliver: Callable[[RangeResult], None]) -> JobEnd:
    """Run every task of the job, and ``deliver`` each result as soon as it is there, from several threads."""
    work = _work(JOB.dump_json(job.common))

    def run_one(task: RangeTask) -> RangeResult:
        try:
            rdd = context.parallelize([TASK.dump_json(task)], 1).mapPartitions(work)
            answer = str(rdd.collect()[0])
        except Exception as e:  # Py4JJavaError for errors of Spark, others if the context is gone
            raise (Aborted if _ABORTED.search(str(e)) else RuntimeError)(cause_of(str(e))) from e
        if answer.startswith(MISSING):
            raise GaveUp(missing(answer.removeprefix(MISSING)))
        return RESULT.validate_json(answer)

    return Dealer(job, run_one, deliver).deal(_at_a_time(context, job))


def _at_a_time(context: SparkContext, job: Job) -> int:
    processors = context.defaultParallelism if (context.master or "").startswith("local") else MOST_AT_A_TIME
    return max(1, min(len(job.tasks), job.parallelism or processors))


class Dealer:
    """Deals the tasks in their order to threads, each of which runs one task at a time.

    A task that Spark aborted is set aside, and runs alone at the end: the death of an executor ends all tasks on it,
    also those that did not cause it. One that is aborted again gets an error as its result.
    """

    def __init__(
        self, job: Job, run_one: Callable[[RangeTask], RangeResult], deliver: Callable[[RangeResult], None]
    ) -> None:
        self._run_one, self._deliver = run_one, deliver
        self._tasks = queue.SimpleQueue[RangeTask]()
        for task in job.tasks:
            self._tasks.put(task)
        self._set_aside: list[RangeTask] = []
        self._aborts, self._lock = 0, threading.Lock()
        self._end: JobEnd | None = None

    def deal(self, at_a_time: int) -> JobEnd:
        with ThreadPoolExecutor(at_a_time) as threads:
            for future in [threads.submit(self._work) for _ in range(at_a_time)]:
                future.result()
        for task in self._set_aside:
            if self._end is None:
                self._run(task, lambda task, cause: self._deliver(died(task, cause)))
        return self._end or JobEnd()

    def _work(self) -> None:
        while self._end is None:
            try:
                task = self._tasks.get_nowait()
            except queue.Empty:
                return
            self._run(task, self._aborted)

    def _run(self, task: RangeTask, aborted: Callable[[RangeTask, str], None]) -> None:
        try:
            result = self._run_one(task)
        except Aborted as e:
            aborted(task, str(e))
        except GaveUp as e:
            self._end = e.end
        except RuntimeError as e:
            log.exception("Spark gave up")
            self._end = JobEnd(error=f"Spark gave up: {e}")
        else:
            self._aborts = 0
            self._deliver(result)

    def _aborted(self, task: RangeTask, cause: str) -> None:
        log.warning("%s: the worker ended in every attempt (%s); the others go on", task.key.source, cause)
        with self._lock:
            self._set_aside.append(task)
            self._aborts += 1
            if self._aborts >= MOST_ABORTS:
                self._end = JobEnd(error=f"Spark gave up: {cause}")


def _work(common: bytes) -> Callable[[Iterable[bytes]], Iterable[str]]:
    """The function that an executor runs. A Spark task gets the part that all tasks share, and its own task.

    It checks the imports before it uses anything of this package, so that it can name a missing module.
    """
    needed, prefix = NEEDED, MISSING

    def work(tasks: Iterable[bytes]) -> Iterable[str]:
        import importlib
        import socket
        import sys

        try:
            for name in needed:
                importlib.import_module(name)
        except ImportError as e:
            return [f"{prefix}{sys.executable} on {socket.gethostname()} cannot import {e.name or ''} ({e})"]
        from kafka_replication.spark.worker import execute

        return [execute(common, task) for task in tasks]

    return work


def missing(what: str) -> JobEnd:
    return JobEnd(
        error=f"a Spark executor cannot run the job: {what}",
        remedy=(
            "install requirements.txt into that Python on every executor, or name another with PYSPARK_PYTHON"
            " (spark.pyspark.python)"
        ),
        retriable=False,
    )
