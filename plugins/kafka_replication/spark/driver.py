"""Runs in the Spark driver: takes jobs from its launcher, and sends back the result of each task when it is there.

When the JVM that started it is gone, the driver has nothing left to do.

Deals a job's tasks to Spark. Each is a Spark job, so that none ends with another one. Small ones share a job. Finds out
if Spark's application can still end its jobs.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeVar

import psutil
from py4j.protocol import INPUT_CONVERTER
from pydantic import TypeAdapter
from pyspark import SparkConf, SparkContext

from kafka_replication.runtime import background
from kafka_replication.runtime.identity import is_running
from kafka_replication.spark import reach
from kafka_replication.spark.channel import DriverSide, Gone
from kafka_replication.spark.jobs import (
    AUDITED,
    AUDITS,
    BUNDLE,
    ENDED_EARLY,
    EXECUTOR_LACKS_MODULE,
    EXECUTOR_LACKS_PYTHON,
    EXECUTORS_LOST,
    GAVE_UP,
    JOB,
    MASTER_SILENT,
    RESULTS,
    WORKER_ENDED,
    Answer,
    Job,
    JobEnd,
    RangeResult,
    RangeTask,
    bundles,
)
from kafka_replication.spark.local import is_local
from kafka_replication.spark.small_ranges import at_once, end_sessions
from kafka_replication.verification.auditing import Audit, Audited

log = logging.getLogger(__name__)
Jobs = queue.SimpleQueue[Job | None]
INTERVAL = 0.5  # seconds between two looks at whether the JVM still runs
GRACE = 20.0  # seconds


def main(parent: int) -> None:
    """The script ``SCRIPT SOCKET``, started by this ``parent``. Ends when the launcher asks for it, or is gone."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    jvm = watch_jvm(parent)
    launcher, jobs = DriverSide(sys.argv[1]), Jobs()
    threading.Thread(target=_take, args=(launcher, jobs, jvm), daemon=True, name="take-jobs").start()
    # Keep Spark's context from loading NumPy and pandas, 0.3 s of processor time and 85 MB: PySpark 4 asks both, where
    # they are installed, whether each value for Java is one of theirs. Nothing of that kind goes to Java here.
    INPUT_CONVERTER[:] = [each for each in INPUT_CONVERTER if not type(each).__module__.startswith("pyspark.sql.")]
    context = SparkContext.getOrCreate(SparkConf())
    try:
        while (job := jobs.get()) is not None:
            launcher.send(Answer(end=run(context, job, lambda result: launcher.send(Answer(result=result)))))
    finally:
        if not is_local(context.master or ""):  # there the JVM, which ends now, stops it; PySpark would wait a second
            context.stop()


def _take(launcher: DriverSide, jobs: Jobs, jvm: psutil.Process | None) -> None:
    try:
        for job in launcher.jobs():
            jobs.put(job)
    except Gone:
        log.error("the process that submitted these jobs is gone: stopping")
        end_jvm(jvm)
        os._exit(1)
    jobs.put(None)


def watch_jvm(parent: int) -> psutil.Process | None:
    """End this process when its JVM is gone. Returns the JVM, or None if it is gone already.

    The JVM is the driver's parent at this moment, so it is remembered now. If the JVM dies, another process becomes the
    driver's parent, in a container often process 1, and that one must not be ended.
    """
    jvm = None
    with contextlib.suppress(psutil.NoSuchProcess):
        jvm = psutil.Process(parent) if parent > 1 else None

    def end_with_it() -> None:
        while jvm is not None and is_running(jvm):
            time.sleep(INTERVAL)
        log.error("the JVM of this driver is gone: stopping")
        os._exit(1)

    threading.Thread(target=end_with_it, daemon=True, name="watch-jvm").start()
    return jvm


def end_jvm(jvm: psutil.Process | None) -> None:
    """Ask the JVM to end, which ends its Python workers. If it has not ended after `GRACE`, kill it: its workers see
    that, too. psutil signals no other process that got the same pid.
    """
    with contextlib.suppress(psutil.Error):
        if jvm is not None and is_running(jvm):
            jvm.terminate()
            with contextlib.suppress(psutil.TimeoutExpired):
                jvm.wait(GRACE)
                return
            jvm.kill()


WITHOUT_EXECUTOR = 30.0  # seconds; a worker of Spark starts another executor within a few


class Application:
    """The application during one job. If Spark stops while jobs run, they never get an answer. It waits for ever for a
    standalone master that is gone or has forgotten the application.

    An application that has had no executor yet waits for its turn on a busy cluster. This is no fault.
    """

    def __init__(self, context: SparkContext) -> None:
        self._context, self._is_standalone = context, reach.is_standalone(context.master or "")
        self._had_one = False
        self._without_since = time.monotonic()

    def end(self) -> JobEnd | None:
        """The end of the application; None while it goes on."""
        scala = self._context._jsc.sc()
        if scala.isStopped():
            return JobEnd.of(ENDED_EARLY)
        if not self._is_standalone:
            return None
        if scala.getExecutorMemoryStatus().size() > 1:  # the driver counts as one
            self._had_one, self._without_since = True, time.monotonic()
        if time.monotonic() - self._without_since < WITHOUT_EXECUTOR:
            return None
        if silent := reach.silent_master(self._context.master or ""):
            return JobEnd.of(MASTER_SILENT, silent)
        return JobEnd.of(EXECUTORS_LOST) if self._had_one else None


LOOK = 1.0  # seconds between two looks at whether Spark's application has ended
MISSING = "missing:"  # an answer of this form names a module that the worker could not import
Work = Callable[[Iterable[bytes]], Iterable[str]]
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


def run(context: SparkContext, job: Job, deliver: Callable[[Any], None]) -> JobEnd:
    """Run every task of the job, or each of its audits. ``deliver`` gets each result as soon as it is there, in several
    threads.

    A job without tasks only finds out whether a worker can run one.
    """
    ended = Application(context).end
    if job.audits:
        slots, work = _slots(context, job, len(job.audits)), _work(replace(job, audits=[]), "audit")
        audit = partial(_run_one, context, work, AUDITS, AUDITED)
        return Dealer([[task] for task in job.audits], audit, deliver, ended).deal(slots)
    slots = _slots(context, job, len(job.tasks))
    work = _work(replace(job, tasks=[], at_a_time=slots, together=at_once(job, slots)), "execute")
    execute = partial(_run_one, context, work, BUNDLE, RESULTS)
    dealt, give_up = bundles(job.tasks, slots) or [[]], partial(end_sessions, job)
    return Dealer(dealt, execute, deliver, ended, give_up).deal(slots)


def _run_one(
    context: SparkContext, work: Work, asked: TypeAdapter[list[T]], answered: TypeAdapter[list[R]], bundle: list[T]
) -> list[R]:
    """The answer to one bundle, which is one Spark job. Raises Aborted, GaveUp, RuntimeError."""
    sent = asked.dump_json(bundle)
    try:
        answer = str(context.parallelize([sent], 1).mapPartitions(work).collect()[0])
    except Exception as e:  # Py4JJavaError for errors of Spark, others if the context is gone
        raise error_of(str(e)) from e
    if answer.startswith(MISSING):
        raise GaveUp(JobEnd.of(EXECUTOR_LACKS_MODULE, answer.removeprefix(MISSING)))
    return answered.validate_json(answer)


def error_of(text: str) -> Exception:
    """The error for the tasks that wait for a Spark job with this text."""
    if _NO_PYTHON.search(text):
        return GaveUp(JobEnd.of(EXECUTOR_LACKS_PYTHON, cause_of(text)))
    return (Aborted if _ABORTED.search(text) else RuntimeError)(cause_of(text))


def _slots(context: SparkContext, job: Job, tasks: int) -> int:
    """The number of Spark jobs that run at a time."""
    # Shares of a limit that are dealt to tasks which only wait for an executor would be lost.
    is_counted = (context.master or "").startswith("local") or job.replication.copying.throughput_limit is not None
    processors = context.defaultParallelism if is_counted else MOST_AT_A_TIME
    return max(1, min(tasks, job.replication.spark.parallelism or processors))


T = TypeVar("T", bound=RangeTask | Audit)
R = TypeVar("R", bound=RangeResult | Audited)


class Dealer(Generic[T, R]):
    """Deals the bundles in their order to threads, each of which runs one bundle at a time.

    If a task failed in a bundle, or Spark aborted its bundle, the task runs again by itself; only that result counts.
    If Spark aborts a single task, the task runs alone at the end: the death of an executor ends all tasks on it, also
    those that did not cause it. If it is aborted again, its result is an error. ``give_up`` gets the aborted tasks
    before they are dealt again: the transactions of dead workers would hide the ledger from the other tasks.
    """

    def __init__(
        self,
        dealt: Iterable[list[T]],
        run_one: Callable[[list[T]], list[R]],
        deliver: Callable[[R], None],
        ended: Callable[[], JobEnd | None] = lambda: None,
        give_up: Callable[[Sequence[T]], None] = lambda tasks: None,
    ) -> None:
        self._run_one, self._deliver, self._ended, self._give_up = run_one, deliver, ended, give_up
        self._bundles = queue.SimpleQueue[list[T]]()
        for bundle in dealt:
            self._bundles.put(bundle)
        self._begun: dict[object, RangeResult] = {}  # of tasks that failed in a bundle
        self._set_aside: list[T] = []
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

    def _died(self, bundle: list[T], cause: str) -> None:
        self._give_up(bundle)
        died: Any = bundle[0].died(f"{WORKER_ENDED.what}: {cause}", WORKER_ENDED.remedy)
        self._hand_over(died)

    def _work(self) -> None:
        while self._end is None:
            try:
                bundle = self._bundles.get_nowait()
            except queue.Empty:
                return
            self._run(bundle, self._aborted)

    def _run(self, bundle: list[T], aborted: Callable[[list[T], str], None]) -> None:
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

    def _take(self, bundle: list[T], results: list[R]) -> None:
        """Deliver the finished results. The unfinished tasks of a bundle become single tasks."""
        done = set[object]()
        for result in results:
            if isinstance(result, RangeResult) and len(bundle) > 1 and not result.is_final:
                self._begun[result.id] = result
            else:
                done.add(result.id)
                self._hand_over(result)
        self._deal_single(task for task in bundle if task.id not in done)

    def _hand_over(self, result: Any) -> None:
        begun = self._begun.get(result.id)
        self._deliver(result.joined_to(begun) if begun else result)

    def _deal_single(self, tasks: Iterable[T]) -> None:
        for task in tasks:
            self._bundles.put([task])

    def _aborted(self, bundle: list[T], cause: str) -> None:
        names = ", ".join(task.where for task in bundle)
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


def _work(job: Job, function: str) -> Work:
    """The call of this ``function`` of `worker` that an executor runs. A Spark task gets the ``job``, which all tasks
    share, and its own bundle.

    It checks the imports that the job needs before it uses anything of this package, so that it can name a missing
    module.
    """
    common, needed = JOB.dump_json(job), job.needed
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
        execute = getattr(importlib.import_module("kafka_replication.spark.worker"), function)
        return [execute(common, bundle) for bundle in bundles]

    return work
