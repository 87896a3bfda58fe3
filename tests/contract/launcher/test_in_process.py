"""The launcher of the tests keeps what Spark's keeps; and the suite sees what a broken launcher does not keep."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import ClassVar

import pytest

from kafka_replication.model.errors import Unreachable
from kafka_replication.runtime import failpoints
from kafka_replication.spark.jobs import Job, JobResult
from tests.contract.launcher.conformance import Subject, check_launcher
from tests.support.scenario import InProcess, Scenario, WorkerDied
from tests.support.scenes import clusters, scene

__all__ = ["clusters", "scene"]


@contextmanager
def killing(at: str) -> Iterator[None]:
    """There is no process to be killed: what would end it is an exception."""

    def die() -> None:
        raise WorkerDied(at)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(failpoints.VARIABLE, f"W@{at}")
        patch.setattr(failpoints, "die", die)
        patch.setattr(failpoints, "_reached", type(failpoints._reached)())
        yield


def test_the_launcher_of_the_tests_conforms(scene: Scenario) -> None:
    check_launcher(Subject(InProcess, killing), scene)


class LosesAResult(InProcess):
    def submit(self, job: Job) -> JobResult:
        done = super().submit(job)
        return replace(done, copies=done.copies[:-1])


class RepeatsAResult(InProcess):
    def submit(self, job: Job) -> JobResult:
        done = super().submit(job)
        return replace(done, copies=[*done.copies, *done.copies[:1]])


class GivesUpWhenARangeFails(InProcess):
    def submit(self, job: Job) -> JobResult:
        done = super().submit(job)
        for result in done.copies:
            if result.error:
                raise Unreachable(result.error, result.remedy)
        return done


class CutsOffTheOthersWhenAWorkerDies(InProcess):
    def submit(self, job: Job) -> JobResult:
        done = super().submit(job)
        died = any("worker" in str(result.error) for result in done.copies)
        return JobResult(error="Spark gave up") if died else done


class CallsADeathFinal(InProcess):
    def submit(self, job: Job) -> JobResult:
        done = super().submit(job)
        return replace(done, copies=[replace(result, retriable=False) for result in done.copies])


class TakesOneJobOnly(InProcess):
    def submit(self, job: Job) -> JobResult:
        if self.jobs:
            raise Unreachable("Spark has ended", "")
        return super().submit(job)


class LeavesAProcess(InProcess):
    left: ClassVar[list[subprocess.Popen[bytes]]] = []

    def submit(self, job: Job) -> JobResult:
        self.left.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
        return super().submit(job)


@pytest.fixture
def _tidy() -> Iterator[None]:
    yield
    for process in LeavesAProcess.left:
        process.kill()
        process.communicate()


@pytest.mark.usefixtures("_tidy")
@pytest.mark.parametrize(
    "broken",
    [
        LosesAResult,
        RepeatsAResult,
        GivesUpWhenARangeFails,
        CutsOffTheOthersWhenAWorkerDies,
        CallsADeathFinal,
        TakesOneJobOnly,
        LeavesAProcess,
    ],
)
def test_the_suite_fails_on_a_broken_launcher(scene: Scenario, broken: type[InProcess]) -> None:
    with pytest.raises(AssertionError):
        check_launcher(Subject(broken, killing, patience=0.5), scene)
