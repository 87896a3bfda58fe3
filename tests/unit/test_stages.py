"""A Spark task that fails too often aborts its stage: what becomes of its ranges, and of all the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_replication.config import Copy
from kafka_replication.copying.engine import CopyTask
from kafka_replication.ledger.entries import Ids
from kafka_replication.model.keys import PartitionKey
from kafka_replication.model.offsets import OffsetRange, TopicPartition
from kafka_replication.spark.jobs import COPY_RESULT, Job, encode, gather
from kafka_replication.spark.stages import MISSING, MOST_ABORTS, Abort, cause_of, isolate

ABORTED = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task {task} in stage 2.0 failed 4 times, \
most recent failure: Lost task {task}.3 in stage 2.0 (TID 11) (localhost executor driver): \
org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handle(PythonRunner.scala:752)
Caused by: java.io.EOFException
"""


def job(ranges: int, parallelism: int | None = None) -> Job:
    tasks = [
        CopyTask(
            key=PartitionKey("orders-dr", TopicPartition("orders", number), "orders"),
            range=OffsetRange(0, 10),
            ids=Ids("c", "s", "t"),
            generation=0,
            run_id="run-1",
        )
        for number in range(ranges)
    ]
    return Job(
        kind="copy",
        replication="orders-dr",
        run_id="run-1",
        source={},
        target={},
        settings=Copy(),
        copies=tasks,
        parallelism=parallelism,
    )


class FakeStages:
    """Spark with workers that ``dies`` says something about; ``finished`` ranges are done before a stage is aborted."""

    def __init__(self, work: Job, dies: Callable[[int], bool], finished: int = 0) -> None:
        self.results: dict[int, str] = {}
        self.submitted: list[list[list[int]]] = []
        self._job, self._dies, self._finished = work, dies, finished

    def run(self, tasks: list[list[int]]) -> Abort | None:
        self.submitted.append(tasks)
        for task, numbers in enumerate(tasks):
            if any(self._dies(number) for number in numbers):
                healthy = [numbers for numbers in tasks if not any(map(self._dies, numbers))]
                self._finish([number for numbers in healthy for number in numbers][: self._finished])
                return Abort.of(RuntimeError(ABORTED.format(task=task)))
        self._finish([number for numbers in tasks for number in numbers])
        return None

    def _finish(self, numbers: list[int]) -> None:
        for number in numbers:
            task = self._job.copies[number]
            done = COPY_RESULT.validate_python({"key": task.key, "range": task.range, "copied": 10})
            self.results[number] = encode(done)


def outcome(work: Job, stages: FakeStages) -> dict[int, str | None]:
    """Each range's error."""
    assert isolate(work, stages) is None  # type: ignore[arg-type]  # it is all that isolate asks of it
    done = gather("copy", list(stages.results.values())).copies
    assert all(result.retriable for result in done if result.error)
    return {result.key.source.partition: result.error for result in done}


def test_without_a_death_there_is_one_stage() -> None:
    work = job(5, parallelism=2)
    stages = FakeStages(work, lambda number: False)
    assert outcome(work, stages) == dict.fromkeys(range(5))
    assert stages.submitted == [[[0, 2, 4], [1, 3]]]


def test_a_range_that_kills_its_workers_ends_alone() -> None:
    work = job(4)
    stages = FakeStages(work, lambda number: number == 1, finished=1)
    errors = outcome(work, stages)
    assert errors.pop(1) is not None and errors == {0: None, 2: None, 3: None}
    assert stages.submitted == [[[0], [1], [2], [3]], [[2], [3]], [[1]]]


def test_its_neighbours_in_the_same_spark_task_are_copied_all_the_same() -> None:
    work = job(6, parallelism=2)
    stages = FakeStages(work, lambda number: number == 2)
    errors = outcome(work, stages)
    assert [number for number, error in errors.items() if error] == [2]
    assert stages.submitted == [[[0, 2, 4], [1, 3, 5]], [[1, 3, 5]], [[0]], [[2]], [[4]]]


@given(st.sets(st.integers(0, 11), max_size=4), st.none() | st.integers(1, 5), st.integers(0, 3))
def test_every_range_has_a_result_and_only_the_deadly_ones_fail(
    deadly: set[int], parallelism: int | None, finished: int
) -> None:
    work = job(12, parallelism)
    errors = outcome(work, FakeStages(work, deadly.__contains__, finished))
    assert {number for number, error in errors.items() if error} == deadly
    assert set(errors) == set(range(12))


def test_where_all_workers_die_spark_is_not_asked_for_ever() -> None:
    work = job(1_000)
    stages = FakeStages(work, lambda number: True)
    error = isolate(work, stages)  # type: ignore[arg-type]
    assert error is not None and "Python worker exited unexpectedly" in error
    assert len(stages.submitted) == MOST_ABORTS and stages.results == {}


def test_what_names_no_task_ends_the_job_and_keeps_what_is_done() -> None:
    work = job(3)
    stages = FakeStages(work, lambda number: False)

    def shut_down(tasks: list[list[int]]) -> Abort:
        stages._finish([0])
        return Abort.of(RuntimeError("org.apache.spark.SparkException: Job 0 cancelled because SparkContext was shut"))

    stages.run = shut_down  # type: ignore[method-assign]
    error = isolate(work, stages)  # type: ignore[arg-type]
    assert error is not None and "SparkContext was shut" in error
    assert list(stages.results) == [0]


def test_what_an_executor_lacks_ends_the_job_at_once() -> None:
    work = job(3)
    stages = FakeStages(work, lambda number: number == 0)
    stages.results[MISSING] = "python3 on host cannot import xxhash"
    isolate(work, stages)  # type: ignore[arg-type]
    assert len(stages.submitted) == 1


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
