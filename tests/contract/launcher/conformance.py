"""What every launcher has to keep, as plain functions that raise AssertionError where one does not."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import psutil

from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.offsets import Coverage, OffsetRange
from kafka_replication.runs.audit import audit
from kafka_replication.spark.jobs import Job, RangeResult
from kafka_replication.spark.launcher import Launcher
from kafka_replication.verification.auditing import Size
from tests.support.processes import is_alive
from tests.support.scenario import Scenario, numbered

RECORDS = 30
HEALTHY, REFUSED, DEADLY = (0, 1), 2, 3
WHOLE = Coverage.of([OffsetRange(0, RECORDS)])


@dataclass(frozen=True)
class Subject:
    """A launcher, and how its workers are made to fail."""

    make: Callable[[], Launcher]
    killing: Callable[[str], AbstractContextManager[None]]  # every worker that begins on this topic-partition dies
    patience: float = 30  # seconds for processes to end; Spark's Python daemon has to see that its JVM has ended


def check_launcher(subject: Subject, scene: Scenario) -> None:
    """Two jobs one after the other, as a run has them; nothing is left of them."""
    before = children()
    job = range_job(scene)
    with subject.killing(f"{scene.topic}-{DEADLY}"), subject.make() as spark:
        check_results(submit(spark, job))
        check_read_back(submit(spark, reading_job(job)))
    check_nothing_left(before, subject.patience)


def check_audits(subject: Subject, scene: Scenario) -> None:
    """Audits, of which one kills its workers: its partition fails, the others are audited, nothing is left."""
    before = children()
    scene.source.create(scene.topic, 3)
    for partition in range(3):
        scene.source.produce(scene.topic, numbered(RECORDS), partition)
    assert scene.run().outcome == "done"
    with subject.killing(f"{scene.topic}-2"), subject.make() as spark:
        report = audit(scene.bare_run(), spark=spark, least=Size())
    found = {one.key.source.partition: one for one in report.partitions}
    assert [found[partition].outcome for partition in HEALTHY] == ["clean"] * len(HEALTHY), report.text()
    assert [found[partition].source_records for partition in HEALTHY] == [RECORDS] * len(HEALTHY)
    assert found[2].outcome == "failed" and "worker" in found[2].errors[0], report.text()
    assert not found[2].by_content
    check_nothing_left(before, subject.patience)


def range_job(scene: Scenario) -> Job:
    """Ranges of four partitions: two that can be copied, one that the ledger refuses, one that kills its workers."""
    scene.source.create(scene.topic, 4)
    for partition in range(4):
        scene.source.produce(scene.topic, numbered(RECORDS), partition)
    job = scene.copy_job()
    tasks = {task.key.source.partition: task for task in job.tasks}
    refused = tasks[REFUSED].copy
    assert refused is not None
    tasks[REFUSED] = replace(tasks[REFUSED], copy=replace(refused, generation=99))
    return replace(job, tasks=[tasks[partition] for partition in (DEADLY, *HEALTHY, REFUSED)])


def reading_job(copied: Job) -> Job:
    return replace(
        copied, tasks=[replace(task, copy=None) for task in copied.tasks if task.key.source.partition in HEALTHY]
    )


def submit(spark: Launcher, job: Job) -> dict[int, RangeResult]:
    """The results by partition. A range that fails is no error of the launcher."""
    results: list[RangeResult] = []
    thread = threading.get_ident()

    def deliver(some: Sequence[RangeResult]) -> None:
        assert threading.get_ident() == thread, "results are delivered in the thread that submits"
        assert some, "there is nothing to deliver"
        results.extend(some)

    try:
        end = spark.submit(job, deliver)
    except ReplicationError as error:
        raise AssertionError(f"the job as a whole failed: {error}") from error
    assert end.error is None, end
    assert sorted(result.key for result in results) == sorted(task.key for task in job.tasks), "one result each"
    return {result.key.source.partition: result for result in results}


def check_results(results: dict[int, RangeResult]) -> None:
    for partition in HEALTHY:
        copied, read_back = results[partition].copied, results[partition].read_back
        assert copied is not None and copied.error is None and copied.copied == RECORDS, copied
        assert read_back is not None and read_back.verified == WHOLE and read_back.error is None, read_back
    refused, died = results[REFUSED].copied, results[DEADLY].copied
    assert refused is not None and "generation 99" in str(refused.error) and not refused.retriable, refused
    assert died is not None and "worker" in str(died.error) and died.retriable, died
    assert died.range == OffsetRange(0, RECORDS) and died.remedy


def check_read_back(results: dict[int, RangeResult]) -> None:
    for result in results.values():
        assert result.copied is None, result
        assert result.read_back is not None and result.read_back.verified == WHOLE, result


def children() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


def check_nothing_left(before: set[psutil.Process], patience: float) -> None:
    left = children() - before
    with contextlib.suppress(psutil.TimeoutExpired):
        psutil.wait_procs(left, timeout=patience)
    assert not [process for process in left if is_alive(process)], left


def check_names_what_is_missing(make: Callable[[], Launcher], job: Job, module: str) -> None:
    """The executors' Python lacks ``module``."""
    with make() as spark:
        end = spark.submit(job, lambda results: None)
    assert f"cannot import {module}" in str(end.error) and not end.retriable, end
    assert "PYSPARK_PYTHON" in end.remedy
