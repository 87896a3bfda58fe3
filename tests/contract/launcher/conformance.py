"""What every launcher has to keep, as plain functions that raise AssertionError where one does not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import psutil

from kafka_replication.model.errors import ReplicationError
from kafka_replication.model.offsets import Coverage, OffsetRange
from kafka_replication.spark.jobs import Job, JobResult
from kafka_replication.spark.launcher import Launcher
from kafka_replication.verification.verify import VerifyTask
from tests.support.processes import is_alive
from tests.support.scenario import Scenario, numbered

RECORDS = 30
HEALTHY, REFUSED, DEADLY = (0, 1), 2, 3


@dataclass(frozen=True)
class Subject:
    """A launcher, and how its workers are made to fail."""

    make: Callable[[], Launcher]
    killing: Callable[[str], AbstractContextManager[None]]  # every worker that begins on this topic-partition dies
    patience: float = 30  # seconds for processes to end; Spark's Python daemon has to see that its JVM has ended


def check_launcher(subject: Subject, scene: Scenario) -> None:
    """Two jobs one after the other, as a run has them; nothing is left of them."""
    before = children()
    job = copy_job(scene)
    with subject.killing(f"{scene.topic}-{DEADLY}"), subject.make() as spark:
        check_copies(submit(spark, job))
        check_verifications(submit(spark, verify_job(scene, job)))
    check_nothing_left(before, subject.patience)


def copy_job(scene: Scenario) -> Job:
    """Ranges of four partitions: two that can be copied, one that the ledger refuses, one that kills its workers."""
    scene.source.create(scene.topic, 4)
    for partition in range(4):
        scene.source.produce(scene.topic, numbered(RECORDS), partition)
    job = scene.copy_job()
    tasks = {task.key.source.partition: task for task in job.copies}
    tasks[REFUSED] = replace(tasks[REFUSED], generation=99)
    return replace(job, copies=[tasks[partition] for partition in (DEADLY, *HEALTHY, REFUSED)])


def verify_job(scene: Scenario, copied: Job) -> Job:
    run = scene.bare_run()
    keys = [task.key for task in copied.copies if task.key.source.partition in HEALTHY]
    receipts = run.clusters.ledger.receipts(dict.fromkeys(keys))
    tasks = [VerifyTask(key=key, receipts=tuple(receipts.of(key, 1)), level="digest") for key in keys]
    return replace(copied, kind="verify", copies=[], verifications=tasks)


def submit(spark: Launcher, job: Job) -> JobResult:
    """A range that fails is no error of the launcher."""
    try:
        return spark.submit(job)
    except ReplicationError as error:
        raise AssertionError(f"the job as a whole failed: {error}") from error


def check_copies(done: JobResult) -> None:
    assert done.error is None, done
    results = {result.key.source.partition: result for result in done.copies}
    assert sorted(results) == [*HEALTHY, REFUSED, DEADLY] and len(done.copies) == 4, "one result for each range"
    for partition in HEALTHY:
        assert results[partition].error is None and results[partition].copied == RECORDS, results[partition]
    assert "generation 99" in str(results[REFUSED].error) and not results[REFUSED].retriable, results[REFUSED]
    assert "worker" in str(results[DEADLY].error) and results[DEADLY].retriable, results[DEADLY]
    assert results[DEADLY].range == OffsetRange(0, RECORDS) and results[DEADLY].remedy


def check_verifications(done: JobResult) -> None:
    assert done.error is None, done
    assert {result.key.source.partition: result.verified for result in done.verifications} == dict.fromkeys(
        HEALTHY, Coverage.of([OffsetRange(0, RECORDS)])
    )


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
        done = submit(spark, job)
    assert f"cannot import {module}" in str(done.error) and not done.retriable, done
    assert "PYSPARK_PYTHON" in done.remedy
