"""A job's ranges as Spark stages: one result a range, and a range that kills its workers ends alone."""

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
MISSING = -1  # in place of a range's number: what a worker could not import
# Aborted stages in a row that finished no range: something is wrong with all workers, not with single ranges.
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
    """The line that says why, of a long trace through two languages: the last one that names an error."""
    return (_ERROR.findall(text) or text.strip().splitlines() or ["no reason given"])[-1][:500]


def run(context: SparkContext, job: Job) -> JobResult:
    """Run every range of the job; a failing range is a result like any other."""
    stages = Stages(context, job)
    error = isolate(job, stages)
    results = stages.results
    if MISSING in results:
        return missing(results[MISSING])
    done = gather(job.kind, [results[number] for number in sorted(results)])
    return replace(done, error=f"Spark gave up: {error}") if error else done


def isolate(job: Job, stages: Stages) -> str | None:
    """Run all ranges in one stage. Spark aborts a stage when one of its tasks failed too often, and cuts off the rest.

    Then the ranges of that task are set aside, and the others that are not done run again in a new stage. What was set
    aside runs at the end, each range alone: one that kills its workers then ends alone, as a result. Returns why that
    was not possible.
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
        open_ = [[number for number in numbers if number not in stages.results] for numbers in left]
        suspects += open_.pop(abort.task)
        left = [numbers for numbers in open_ if numbers]
    for number in suspects:
        abort = stages.run([[number]])
        if abort is not None and abort.task is None:
            return abort.cause
        if abort is not None:
            stages.results[number] = encode(died(job.tasks[number], abort.cause))
    return None


class Stages:
    """Runs ranges in a stage of their own and keeps their results, also those of a stage that is aborted."""

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
        except Exception as e:  # Py4JJavaError for what Spark says, others for a context that is gone
            log.exception("Spark gave up a stage")
            return Abort.of(e)
        finally:
            self.results |= self._finished.value
        return None


def _accumulator(context: SparkContext) -> Accumulator[Results]:
    """Brings a task's results to the driver when the task is done, before the stage is.

    The class is local, so that it travels by value: an executor that cannot import ours can still say so.
    """

    class Union(AccumulatorParam[Results]):
        def zero(self, value: Results) -> Results:  # noqa: ARG002 - Spark's signature
            return {}

        def addInPlace(self, value1: Results, value2: Results) -> Results:  # noqa: N802 - Spark's name
            value1.update(value2)
            return value1

    return context.accumulator({}, Union())


def _task(common: bytes, finished: Accumulator[Results]) -> Callable[[Iterable[Any]], None]:
    """What an executor runs. A Spark task gets what all share, and the rows of its own ranges.

    It needs nothing of ours until it has looked for it, so that what is missing there can be named.
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
