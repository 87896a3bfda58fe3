"""Runs a job's ranges in Spark stages: one result per range. A range that kills its workers fails alone."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from pyspark import Accumulator, AccumulatorParam, SparkContext

from kafka_replication.spark.jobs import JOB, Job, JobResult, died, encode, gather, partition_tasks

log = logging.getLogger(__name__)
NEEDED = ("confluent_kafka", "xxhash", "pydantic", "tenacity", "kafka_replication.kafka.engines.record.engine")
MISSING = -1  # used in place of a range's number, for the modules that a worker could not import
# After this many aborted stages in a row that finished no range, the cause lies in the workers, not in single ranges.
MOST_ABORTS = 5
Results = dict[int, str]


@dataclass(frozen=True, slots=True)
class Abort:
    """Why Spark gave up a stage; ``task`` is the number of the Spark task that failed too often, if Spark names one."""

    cause: str
    task: int | None

    @classmethod
    def of(cls, error: BaseException) -> Abort:
        text = str(error)
        named = _TASK.search(text)
        return cls(cause_of(text), int(named[1]) if named else None)


_TASK = re.compile(r"Task (\d+) in stage \S+ failed \d+ times")
_ERROR = re.compile(r"^(?:: )?([\w.]+(?:Error|Exception|Exit)\b.*)$", re.MULTILINE)


def cause_of(text: str) -> str:
    """The line of a long Java and Python trace that says why: the last line that names an error."""
    return (_ERROR.findall(text) or text.strip().splitlines() or ["no reason given"])[-1][:500]


def run(context: SparkContext, job: Job) -> JobResult:
    """Run every range of the job. A failed range has a result as well."""
    stages = Stages(context, job)
    error = isolate(job, stages)
    results = stages.results
    if MISSING in results:
        return missing(results[MISSING])
    done = gather(job.kind, [results[number] for number in sorted(results)])
    return replace(done, error=f"Spark gave up: {error}") if error else done


def isolate(job: Job, stages: Stages) -> str | None:
    """Run all ranges in one stage, and fail only those ranges that kill their workers.

    Spark aborts a stage, with all its tasks, when one task failed too often. Then the ranges of that task are set
    aside, and the other unfinished ranges run again in a new stage. The ranges that were set aside run at the end, each
    in its own stage: a range that kills its workers then gets an error as its result. Returns the cause if Spark gave
    up as a whole, else None.
    """
    left, suspects, aborts = partition_tasks(len(job.tasks), job.parallelism), list[int](), 0
    while left:
        before = len(stages.results)
        abort = stages.run(left)
        if abort is None or MISSING in stages.results:
            break
        aborts = aborts + 1 if len(stages.results) == before else 1
        if abort.task is None or aborts == MOST_ABORTS:
            return abort.cause
        log.warning("a Spark task failed too often (%s); the others go on without it", abort.cause)
        unfinished = [[number for number in numbers if number not in stages.results] for numbers in left]
        suspects += unfinished.pop(abort.task)
        left = [numbers for numbers in unfinished if numbers]
    for number in suspects:
        abort = stages.run([[number]])
        if abort is not None and abort.task is None:
            return abort.cause
        if abort is not None:
            stages.results[number] = encode(died(job.tasks[number], abort.cause))
    return None


class Stages:
    """Runs ranges as stages and keeps their results, also the results of an aborted stage."""

    def __init__(self, context: SparkContext, job: Job) -> None:
        self.results: Results = {}
        self._context, self._rows = context, job.rows()
        self._finished = _accumulator(context)
        self._work = _task(JOB.dump_json(job.common), self._finished)

    def run(self, tasks: list[list[int]]) -> Abort | None:
        """Each list of range numbers is one Spark task."""
        rows = [[(number, self._rows[number]) for number in numbers] for numbers in tasks]
        try:
            self._context.parallelize(rows, len(rows)).foreachPartition(self._work)
        except Exception as e:  # Py4JJavaError for errors of Spark, others if the context is gone
            log.exception("Spark gave up a stage")
            return Abort.of(e)
        finally:
            self.results |= self._finished.value
        return None


def _accumulator(context: SparkContext) -> Accumulator[Results]:
    """Brings a task's results to the driver when the task ends, before the stage ends.

    The class is local, so that Spark pickles it by value: an executor that cannot import this package can still report
    that.
    """

    class Union(AccumulatorParam[Results]):
        def zero(self, value: Results) -> Results:  # noqa: ARG002 - Spark's signature
            return {}

        def addInPlace(self, value1: Results, value2: Results) -> Results:  # noqa: N802 - Spark's name
            value1.update(value2)
            return value1

    return context.accumulator({}, Union())


def _task(common: bytes, finished: Accumulator[Results]) -> Callable[[Iterable[Any]], None]:
    """The function that an executor runs. A Spark task gets the part that all tasks share, and the rows of its ranges.

    It checks the imports before it uses anything of this package, so that it can name a missing module.
    """
    needed, missing_number = NEEDED, MISSING

    def task(rows: Iterable[list[tuple[int, bytes]]]) -> None:
        import importlib
        import socket
        import sys

        try:
            for name in needed:
                importlib.import_module(name)
        except ImportError as e:
            where = f"{sys.executable} on {socket.gethostname()}"
            finished.add({missing_number: f"{where} cannot import {e.name or ''} ({e})"})
            return
        from kafka_replication.spark.worker import execute

        for number, row in (pair for part in rows for pair in part):
            finished.add({number: execute(common, row)})

    return task


def missing(what: str) -> JobResult:
    return JobResult(
        error=f"a Spark executor cannot run the job: {what}",
        remedy=(
            "install requirements.txt into that Python on every executor, or name another with PYSPARK_PYTHON"
            " (spark.pyspark.python)"
        ),
        retriable=False,
    )
