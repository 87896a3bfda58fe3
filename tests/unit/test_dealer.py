"""Tasks are dealt one by one, small ones in bundles: what becomes of one whose workers die, and of all the others."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import chain
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.copying.engine import CopyResult, CopyTask
from kafka_replication.ledger.entries import Ids
from kafka_replication.model.offsets import OffsetRange, PartitionKey, TopicPartition
from kafka_replication.spark.driver import (
    MOST_ABORTS,
    MOST_AT_A_TIME,
    Aborted,
    Dealer,
    GaveUp,
    _slots,
    cause_of,
    error_of,
)
from kafka_replication.spark.jobs import EXECUTOR_LACKS_MODULE, Bundle, Job, JobEnd, RangeResult, RangeTask
from tests.support.jobs import job_with, reading

ABORTED = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task {task} in stage 2.0 failed 4 times, \
most recent failure: Lost task {task}.3 in stage 2.0 (TID 11) (localhost executor driver): \
org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handle(PythonRunner.scala:752)
Caused by: java.io.EOFException
"""


def job(ranges: int, **settings: Any) -> Job:
    keys = [PartitionKey("orders-dr", TopicPartition("orders", number), "orders") for number in range(ranges)]
    tasks = [
        RangeTask(
            copy=CopyTask(key=key, range=OffsetRange(0, 10), ids=Ids("c", "s", "t"), generation=0, run_id="run-1"),
            read_back=reading(key),
        )
        for key in keys
    ]
    return job_with(tasks, **settings)


class Spark:
    """Runs tasks in bundles of ``size``; ``run_one`` says what becomes of one. Counts how often each was run, and how
    many bundles at a time. In ``failing`` are those that fail in company.
    """

    def __init__(
        self,
        tasks: int,
        run_one: Callable[[int], None],
        at_a_time: int = 3,
        size: int = 1,
        failing: Collection[int] = (),
    ) -> None:
        self._failing = failing
        self.runs: Counter[int] = Counter()
        self.order: list[int] = []
        self.most_at_a_time = 0
        self._at_work, self._lock, self._run_one = 0, threading.Lock(), run_one
        self.results: dict[int, RangeResult] = {}
        all_tasks = job(tasks).tasks
        dealt = [all_tasks[first : first + size] for first in range(0, tasks, size)]
        self.end = Dealer(dealt, self._run, self._deliver).deal(at_a_time)

    def _run(self, bundle: Bundle) -> list[RangeResult]:
        numbers = [task.key.source.partition for task in bundle]
        with self._lock:
            self.runs.update(numbers)
            self.order += numbers
            self._at_work += 1
            self.most_at_a_time = max(self.most_at_a_time, self._at_work)
        try:
            for number in numbers:
                self._run_one(number)
        finally:
            with self._lock:
                self._at_work -= 1
        in_company = len(bundle) > 1
        return [
            _copied(task, "slow" if number in self._failing and in_company else None)
            for number, task in zip(numbers, bundle, strict=True)
        ]

    def _deliver(self, result: RangeResult) -> None:
        with self._lock:
            number = result.key.source.partition
            assert number not in self.results
            self.results[number] = result

    @property
    def failed(self) -> set[int]:
        return {number for number, result in self.results.items() if result.copied and result.copied.error}


def _copied(task: RangeTask, error: str | None) -> RangeResult:
    result = CopyResult(key=task.key, range=OffsetRange(0, 10), copied=4 if error else 10, error=error)
    return RangeResult(key=task.key, copied=result)


def dies(*numbers: int) -> Callable[[int], None]:
    def run_one(number: int) -> None:
        if number in numbers:
            raise Aborted("Python worker exited unexpectedly")

    return run_one


@given(st.integers(0, 40), st.integers(1, 6))
def test_every_task_is_run_once_in_order_and_never_more_than_that_many_at_a_time(tasks: int, at_a_time: int) -> None:
    spark = Spark(tasks, dies(), at_a_time)
    assert spark.end == JobEnd()
    assert spark.runs == Counter(range(tasks))
    assert spark.most_at_a_time <= at_a_time
    if at_a_time == 1:
        assert spark.order == list(range(tasks))


def test_a_task_whose_thread_has_not_ended_is_not_dealt_again() -> None:
    tasks = job(2).tasks
    dealt, delivered = list[list[int]](), list[RangeResult]()

    def run_one(bundle: Bundle) -> list[RangeResult]:
        dealt.append([task.key.source.partition for task in bundle])
        return [replace(_copied(task, "slow"), at_work=task is tasks[0]) for task in bundle]

    assert Dealer([tasks], run_one, delivered.append).deal(1) == JobEnd()
    assert dealt == [[0, 1], [1]]
    assert [result.key.source.partition for result in delivered] == [0, 1]


def test_no_task_waits_for_another_s_end() -> None:
    """The first is at work until all the others are done."""
    others = threading.Semaphore(0)

    def run_one(number: int) -> None:
        if number == 0:
            for _ in range(9):
                assert others.acquire(timeout=60)
        else:
            others.release()

    assert len(Spark(10, run_one, at_a_time=2).results) == 10


@given(st.sets(st.integers(0, 11), max_size=MOST_ABORTS - 1), st.integers(1, 5))
def test_only_the_deadly_ones_fail_each_in_two_jobs(deadly: set[int], at_a_time: int) -> None:
    spark = Spark(12, dies(*deadly), at_a_time)
    assert spark.end == JobEnd()
    assert set(spark.results) == set(range(12)) and spark.failed == deadly
    assert all(spark.runs[number] == (2 if number in deadly else 1) for number in range(12))


@pytest.mark.parametrize(
    ("master", "limit", "expected"),
    [("local[2,4]", None, 7), ("spark://host:7077", None, MOST_AT_A_TIME), ("spark://host:7077", 10_000, 7)],
)
def test_with_a_limit_no_more_tasks_get_a_share_than_run_at_a_time(
    master: str, limit: int | None, expected: int
) -> None:
    context: Any = SimpleNamespace(master=master, defaultParallelism=7)
    copying = {"throughput_limit": limit}
    assert _slots(context, job(1_000, copy=copying), 1_000) == expected
    assert _slots(context, job(1_000, copy=copying, spark={"parallelism": 3}), 1_000) == 3


def test_one_that_died_with_its_neighbour_is_run_again_alone() -> None:
    spark: list[int] = []

    def run_one(number: int) -> None:
        spark.append(number)
        if number == 1 or (number == 2 and spark.count(2) == 1):
            raise Aborted("the executor was lost")

    assert Spark(4, run_one).failed == {1}


@given(st.integers(2, 7), st.sets(st.integers(0, 11), max_size=2))
def test_only_the_deadly_ones_of_a_bundle_fail(size: int, deadly: set[int]) -> None:
    spark = Spark(12, dies(*deadly), size=size)
    assert spark.end == JobEnd()
    assert set(spark.results) == set(range(12)) and spark.failed == deadly


@given(st.integers(2, 7), st.sets(st.integers(0, 11)))
def test_what_fails_in_a_bundle_is_run_again_alone_and_counted_once(size: int, failing: set[int]) -> None:
    spark = Spark(12, dies(), size=size, failing=failing)
    assert set(spark.results) == set(range(12)) and not spark.failed
    together = {number for number in failing if len(range(12)[number // size * size :][:size]) > 1}
    assert {number for number, runs in spark.runs.items() if runs == 2} == together
    copied = {number: result.copied.copied for number, result in spark.results.items() if result.copied}
    assert copied == {number: 14 if number in together else 10 for number in range(12)}


def test_what_was_aborted_is_given_up_before_it_runs_again_and_before_it_is_told() -> None:
    """Dead workers may have left transactions open, and live ones of a lost executor may still be at work."""
    story: list[tuple[str, list[int]]] = []

    def note(what: str) -> Callable[[Sequence[RangeTask]], None]:
        return lambda tasks: story.append((what, [task.key.source.partition for task in tasks]))

    def run_one(bundle: Bundle) -> list[RangeResult]:
        note("run")(bundle)
        raise Aborted("the worker was killed")

    Dealer([job(2).tasks], run_one, lambda one: note("told")(_tasks_of(one)), give_up=note("given up")).deal(1)
    alone = [[("run", [one]), ("given up", [one])] for one in (0, 1)]
    again = [[("run", [one]), ("given up", [one]), ("told", [one])] for one in (0, 1)]
    assert story == [("run", [0, 1]), ("given up", [0, 1]), *chain(*alone, *again)]


def _tasks_of(result: RangeResult) -> Bundle:
    return [task for task in job(2).tasks if task.key == result.key]


def test_where_all_workers_die_spark_is_not_asked_for_ever() -> None:
    spark = Spark(1_000, dies(*range(1_000)))
    assert spark.end.error == "Spark gave up: Python worker exited unexpectedly" and spark.end.retriable
    assert sum(spark.runs.values()) <= MOST_ABORTS + 2 and spark.results == {}


def test_what_names_no_task_ends_the_job_and_keeps_what_is_done() -> None:
    def run_one(number: int) -> None:
        if number == 5:
            raise RuntimeError("Job 0 cancelled because SparkContext was shut down")

    spark = Spark(1_000, run_one)
    assert "SparkContext was shut" in str(spark.end.error)
    assert 3 <= len(spark.results) < 1_000 and not spark.failed


def test_what_an_executor_lacks_ends_the_job_at_once() -> None:
    def run_one(number: int) -> None:
        raise GaveUp(JobEnd.of(EXECUTOR_LACKS_MODULE, "python3 on host cannot import xxhash"))

    spark = Spark(1_000, run_one)
    assert "cannot import xxhash" in str(spark.end.error) and not spark.end.retriable
    assert sum(spark.runs.values()) <= 3


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (ABORTED.format(task=3), "org.apache.spark.SparkException: Job aborted due to stage failure: Task 3 in stage"),
        ("Traceback\n  File x\nValueError: no such thing\n", "ValueError: no such thing"),
        ("connection refused", "connection refused"),
        ("", "no reason given"),
    ],
)
def test_the_cause_is_the_line_that_names_an_error(text: str, cause: str) -> None:
    assert cause_of(text).startswith(cause)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, None),
        (GaveUp(JobEnd.of(EXECUTOR_LACKS_MODULE, "python3 on host cannot import xxhash")), "cannot import xxhash"),
        (Aborted("Python worker exited unexpectedly"), "exited unexpectedly"),
        (RuntimeError("no executor came"), "no executor came"),
    ],
    ids=["it can", "a module is missing", "the worker dies", "Spark gives up"],
)
def test_a_job_without_tasks_says_whether_a_worker_can_run_one(answer: Exception | None, said: str | None) -> None:
    asked = list[Bundle]()

    def run_one(bundle: Bundle) -> list[RangeResult]:
        asked.append(bundle)
        if answer is not None:
            raise answer
        return []

    error = Dealer([[]], run_one, lambda result: pytest.fail(str(result))).deal(1).error
    assert asked == [[]]
    assert said in str(error) if said else error is None


def test_a_spark_that_never_answers_ends_with_its_application() -> None:
    """One job is told so, and the other one never: Spark forgets it."""
    forgotten, delivered = threading.Event(), list[RangeResult]()
    tasks = job(2).tasks

    def run_one(bundle: Bundle) -> list[RangeResult]:
        if bundle[0] is tasks[0]:
            forgotten.wait()
        raise RuntimeError("Cannot call methods on a stopped SparkContext.")

    try:
        ended = JobEnd(error="the application has ended")
        end = Dealer([[task] for task in tasks], run_one, delivered.append, lambda: ended).deal(2)
        assert end == ended and delivered == []
    finally:
        forgotten.set()


@pytest.mark.parametrize(
    "said",
    [
        'java.io.IOException: Cannot run program "/not/there": error=2, No such file or directory',
        "org.apache.spark.SparkException: EOFException occurred while reading the port number from"
        " pyspark.daemon's stdout and terminated with code: 1.",
        "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different"
        " version: 3.10 than that in driver: 3.11",
    ],
)
def test_a_python_that_cannot_start_is_no_death_of_a_worker(said: str) -> None:
    crashed = "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"
    error = error_of(ABORTED.format(task=0).replace(crashed, said))
    assert isinstance(error, GaveUp) and not error.end.retriable
    assert said in str(error.end.error) and "PYSPARK_PYTHON" in error.end.remedy
    assert isinstance(error_of(ABORTED.format(task=0)), Aborted)
